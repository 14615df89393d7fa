"""Warren: a safe, instant place for AI agents to run code."""

__version__ = "0.1.0"
