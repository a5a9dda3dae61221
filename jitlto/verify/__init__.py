"""Proofs without a GPU: every kernel plans and links, and what is wrong where not."""
