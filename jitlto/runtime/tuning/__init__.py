"""The best variant of a kernel for a problem: looked up in wisdom, and found by measuring."""
