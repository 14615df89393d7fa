"""HTML decks to PowerPoint: runs INSIDE a sandbox of the office image, and imports nothing else of ours."""
