"""Executions: requests, output, deadlines, and why one ended."""
