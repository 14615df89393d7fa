"""The audit log: append-only, hash-chained, written in batches."""
