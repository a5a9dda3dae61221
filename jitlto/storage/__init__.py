"""Files: the fragment database, its serialization, cache directories and family declarations."""
