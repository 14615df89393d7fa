"""Who the caller is: API keys and JSON Web Tokens."""
