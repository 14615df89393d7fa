"""Files of workspaces, and files that the service stores by id."""
