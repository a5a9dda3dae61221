"""Matrices: JSON documents whose modified Cartesian product is a list of combinations."""

from jitlto.build.matrix.document import Matrix, MatrixWarning, expand, load_matrix
from jitlto.build.matrix.tree import Value

__all__ = ["Matrix", "MatrixWarning", "Value", "expand", "load_matrix"]
