"""Blobs: contents that the service keeps for its callers, outside the store."""
