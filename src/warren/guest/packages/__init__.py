"""Packages that a sandbox installs for itself."""
