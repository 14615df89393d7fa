"""What runs inside a sandbox. Standard library only, and nothing else of Warren: it is copied there as it is."""
