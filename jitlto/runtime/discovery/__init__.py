"""Finding databases: search path, installed packages and the lookup cache."""
