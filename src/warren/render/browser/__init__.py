"""The browser: process, protocol, and the page of one job."""
