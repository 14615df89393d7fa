"""Locks, queues and limits."""
