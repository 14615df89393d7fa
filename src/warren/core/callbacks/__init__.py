"""Tools outside that programs inside a sandbox may call."""
