"""Policies: what the operator and the rules allow. Pure: values in, decisions out."""
