"""Egress: the proxy, its policies, and the record of connections."""
