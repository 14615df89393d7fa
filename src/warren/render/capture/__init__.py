"""Capture of the slide that is shown."""
