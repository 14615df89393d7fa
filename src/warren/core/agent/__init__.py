"""Client of the agent inside a sandbox. Everything it receives is hostile until parsed."""
