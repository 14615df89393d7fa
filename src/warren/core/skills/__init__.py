"""Skills: packages that callers keep here and put into sandboxes."""
