"""Warren's own API, under `/api/v1`."""
