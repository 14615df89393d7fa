"""File operations in the workspace."""
