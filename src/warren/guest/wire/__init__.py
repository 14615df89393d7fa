"""The wire protocol. The only part of the guest that the service imports."""
