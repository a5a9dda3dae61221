"""A configuration becomes a plan."""
