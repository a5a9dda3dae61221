"""Loaded kernels: launchers, argument conversion, streams and residency."""
