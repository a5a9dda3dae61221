"""Matrices: JSON documents whose modified Cartesian product is a list of combinations."""
