"""Proofs that need no GPU."""
