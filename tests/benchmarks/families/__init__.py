"""The benchmark of the families ``ivf_flat``, ``fft`` and ``transport``: each against what one would do without jitlto.

``python -m tests.benchmarks.families --output DIR`` runs all of it, each part in a process of its own.
"""
