"""Conformance checks for authors of engines and stores."""
