"""A linked kernel is launched."""
