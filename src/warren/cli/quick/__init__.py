"""The commands people wait for most, with the standard library only.

A Python with typer, pydantic, anyio and httpx imported has spent ten times what a sandbox costs. These modules import
none of them, and answer the ordinary forms of `warren run`, `warren ps` and `warren --help`. Each returns None for
anything else, before it has changed anything, and the whole command line takes over.
"""
