"""Scripts that measure; results go to ``docs/benchmarks/`` as JSON."""
