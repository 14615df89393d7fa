"""Where sandboxes come from: one module or package an engine."""
