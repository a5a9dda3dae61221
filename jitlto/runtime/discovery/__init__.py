"""Finding databases: search path, installed packages, editable installs and the lookup cache."""
