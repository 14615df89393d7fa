"""One module for each kernel mechanism."""
