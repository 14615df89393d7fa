"""The keeper: the only privileged process, and the sandboxes of one data folder."""
