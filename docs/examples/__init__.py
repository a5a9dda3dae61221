"""Front ends of shipped families in Python: to read, to copy and to run."""
