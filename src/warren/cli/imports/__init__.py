"""Reading the configuration of other products."""
