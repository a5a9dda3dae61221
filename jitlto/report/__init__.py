"""A database as a page to look at: a third reader of the database, which needs neither wing."""
