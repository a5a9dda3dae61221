"""A database as an HTML page; independent of the build side and the run side."""
