"""Signed links to one thing in one sandbox."""
