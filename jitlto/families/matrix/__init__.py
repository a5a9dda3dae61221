"""Matrices: JSON documents whose modified Cartesian product is a list of combinations."""

from jitlto.families.matrix.document import Matrix, load_matrix, parse_matrix
from jitlto.families.matrix.tree import MOST_COMBINATIONS, Value

__all__ = ["MOST_COMBINATIONS", "Matrix", "Value", "load_matrix", "parse_matrix"]
