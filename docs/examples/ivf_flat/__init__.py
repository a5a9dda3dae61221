"""Nearest neighbours on a GPU with an inverted-file index, using the kernels of the family ``ivf_flat``.

It needs CuPy, a GPU, and a database of the family, named by ``JITLTO_DATABASE_PATH`` or passed to the index::

    from docs.examples.ivf_flat import Index

    index = Index.build(dataset, n_lists=1024)
    distances, neighbours = index.search(queries, k=10, n_probes=32)
    index.save("index.npz")
"""

from docs.examples.ivf_flat.index import METRICS, Index, Metric
from docs.examples.ivf_flat.kmeans import kmeans, nearest
from docs.examples.ivf_flat.lists import Lists, veclen_for
from docs.examples.ivf_flat.scan import Scanner, capacity_for

__all__ = ["METRICS", "Index", "Lists", "Metric", "Scanner", "capacity_for", "kmeans", "nearest", "veclen_for"]
