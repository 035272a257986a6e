"""Which rows teach the same thing.

A clusterer is a frozen dataclass: its fields are its hyper-parameters, its call turns features into
clusters. Axes: n rows, d feature dimensions, k clusters, w nearest centers of each row.
"""

from collections.abc import Mapping

from cluster_bench.clusters.capped_kmeans import CappedKMeans
from cluster_bench.clusters.one import OneCluster

CLUSTERERS: Mapping[str, type] = {"capped_kmeans": CappedKMeans, "one": OneCluster}
