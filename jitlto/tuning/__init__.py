"""Problems, variants, and what was measured to be the fastest."""
