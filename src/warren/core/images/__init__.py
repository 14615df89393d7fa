"""Images: specs, the catalog, and building one."""
