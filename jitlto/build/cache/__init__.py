"""The build cache: compiler output by content, and the reasons for a rebuild."""
