"""TCP through the wire."""
