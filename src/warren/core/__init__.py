"""What we do: knows no HTTP, and an engine only by its seam."""
