"""Sandboxes: create, change status, pool, reap, recover."""
