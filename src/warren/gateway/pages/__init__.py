"""The pages that the service shows to people: its own, the API page and the documentation site."""
