"""What this host allows: each isolation layer tried, and remedies."""
