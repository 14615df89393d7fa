"""The guest: all code that runs inside a sandbox. Standard library only; it is copied there as it is."""
