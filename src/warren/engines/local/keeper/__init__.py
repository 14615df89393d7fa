"""The keeper: the only privileged process."""
