"""Onyx's code interpreter: programs with files, each in a sandbox of its own, and sessions of bash and Python."""
