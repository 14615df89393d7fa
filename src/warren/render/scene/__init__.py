"""A slide as plain values, between browser and PowerPoint."""
