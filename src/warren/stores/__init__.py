"""What survives: the store seam and the stores behind it."""
