"""Protocols on the listening sockets."""
