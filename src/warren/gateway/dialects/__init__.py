"""The HTTP APIs that Warren speaks, one package each: `routes`, `schemas`, `translate`."""
