"""HTML decks rendered to presentations, each in a sandbox of its own."""
