"""Engines: they make, reach and remove sandboxes. One package for each."""
