"""Executions: run, follow, cancel, record, recover."""
