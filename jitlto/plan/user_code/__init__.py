"""Callers' own device code: sources, binaries and Python functions that join a plan."""
