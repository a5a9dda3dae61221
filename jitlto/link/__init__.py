"""A plan becomes a linked kernel."""
