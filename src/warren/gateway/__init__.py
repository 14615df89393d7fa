"""HTTP: what comes in is checked, translated, handed to the core, and rendered."""
