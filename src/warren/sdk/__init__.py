"""The client library: `warren.Client` and `warren.AsyncClient`. It knows the API, and nothing of the service behind it.

`_async` is written by hand and `_sync` made from it by `make sdk`. What does no I/O is beside them and used by both.
"""
