"""Stores: the protocol of what survives the service, and its implementations."""
