"""Probe: tries each layer of isolation on this host, and names remedies."""
