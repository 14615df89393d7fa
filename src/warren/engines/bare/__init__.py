"""The bare engine: plain processes, no isolation. For tests and development."""
