# Made from src/warren/sdk/_async/__init__.py by `make sdk`: change that instead.
"""The client with `await`, which is written by hand: `make sdk` makes `_sync` from it."""
