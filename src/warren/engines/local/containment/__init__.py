"""The plan that contains a sandbox, and performing it."""
