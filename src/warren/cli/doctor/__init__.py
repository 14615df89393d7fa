"""What `warren doctor` reports."""
