"""HTTP and WebSocket proxy to servers inside sandboxes."""
