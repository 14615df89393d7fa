"""What is read from a slide that is shown."""
