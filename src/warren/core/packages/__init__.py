"""Package installs, and the package index that sandboxes see."""
