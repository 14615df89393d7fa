"""The nouns: frozen values, errors and rules. No I/O and no framework."""
