"""Operators of frameworks: an author's declaration of a call of a kernel, and the front ends made from it."""
