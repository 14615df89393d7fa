"""Writing PowerPoint files."""
