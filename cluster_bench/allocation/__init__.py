"""Which rank trains on which row, and how much the row counts.

An allocator is a frozen dataclass: its fields are its hyper-parameters, its call turns tokens, clusters
and the selection into the plan's source. Axes: m selected rows, k clusters.
"""

from collections.abc import Mapping

from cluster_bench.allocation.cluster_per_rank import ClusterPerRank
from cluster_bench.allocation.clusters_by_tokens import ClustersByTokens
from cluster_bench.allocation.shuffled import Shuffled
from cluster_bench.allocation.shuffled_by_tokens import ShuffledByTokens
from cluster_bench.allocation.shuffled_ranks import ShuffledRanks
from cluster_bench.allocation.sorted_by_length import SortedByLength
from cluster_bench.allocation.stratified_shuffled import StratifiedShuffled

ALLOCATORS: Mapping[str, type] = {
    "cluster_per_rank": ClusterPerRank,
    "clusters_by_tokens": ClustersByTokens,
    "shuffled": Shuffled,
    "shuffled_by_tokens": ShuffledByTokens,
    "shuffled_ranks": ShuffledRanks,
    "sorted_by_length": SortedByLength,
    "stratified_shuffled": StratifiedShuffled,
}
