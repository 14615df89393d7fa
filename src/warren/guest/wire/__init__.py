"""The wire protocol: the only part of the guest that host code imports."""
