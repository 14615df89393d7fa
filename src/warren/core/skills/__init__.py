"""Skills: packages of instructions and files that callers keep here and install in sandboxes."""
