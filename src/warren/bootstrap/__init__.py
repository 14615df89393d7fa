"""Composition: from settings to an engine, a store and the service over them."""
