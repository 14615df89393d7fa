"""The otari dialect: sessions with a Python that remembers, a shell, an editor and files."""
