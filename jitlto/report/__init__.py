"""A database as a page: a third reader of the database, independent of both wings."""
