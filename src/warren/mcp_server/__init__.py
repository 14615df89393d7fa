"""Models call Warren as tools: the MCP server, over the same use cases as every other way in.

Imported only where MCP is spoken: the library behind it takes longer to load than all the rest of a command.
"""
