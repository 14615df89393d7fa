"""Connections to servers inside sandboxes."""
