"""The build cache: compiler output by content."""
