"""Nearest neighbours on a GPU with an inverted-file index, using the kernels of the family ``ivf_flat_batch``.

It needs CuPy, a GPU, and a database of the family, which holds ``ivf_flat`` too. In a checkout, after
``jitlto build ivf_flat_batch -o ivf_flat_batch.fragdb``::

    from docs.examples.ivf_flat import Index

    index = Index.build(dataset, n_lists=1024, kernels="ivf_flat_batch.fragdb")
    distances, neighbours = index.search(queries, k=10, n_probes=32)
    index.save("index.npz")

``kernels`` can be left out if the database is on ``JITLTO_DATABASE_PATH``.
"""

from docs.examples.ivf_flat.coarse import Coarse
from docs.examples.ivf_flat.index import METRICS, Index, Metric
from docs.examples.ivf_flat.kmeans import kmeans
from docs.examples.ivf_flat.lists import Lists, veclen_for
from docs.examples.ivf_flat.scan import Scanner, capacity_for
from docs.examples.ivf_flat.steps import Steps
from docs.examples.ivf_flat.tiles import TiledScanner

__all__ = [
    "METRICS",
    "Coarse",
    "Index",
    "Lists",
    "Metric",
    "Scanner",
    "Steps",
    "TiledScanner",
    "capacity_for",
    "kmeans",
    "veclen_for",
]
