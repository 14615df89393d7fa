"""The client with `await`, which is written by hand: `make sdk` makes `_sync` from it."""
