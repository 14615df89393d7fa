"""The terminal in front of a person: tables, progress, signals, raw mode."""
