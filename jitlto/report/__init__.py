"""A database as a tree of text, and as an HTML page."""
