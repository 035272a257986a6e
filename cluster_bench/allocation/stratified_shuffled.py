"""The control for cluster-per-rank: every rank sees every cluster."""

import numpy as np
from pydantic.dataclasses import dataclass

from cluster_bench.allocation.deal import check_ranks, deal, share_weights
from cluster_bench.artifacts import STRICT, Allocation, Clusters, Selection, Tokens


@dataclass(frozen=True, config=STRICT)
class StratifiedShuffled:
    """Each cluster's rows dealt evenly over all ranks, with the weights of `ClusterPerRank`.

    Ranks differ by at most one row of each cluster, and by at most one row in all. As each rank draws its
    rows at random, the global batches have the clusters of cluster-per-rank's on average, not one by one;
    for that see `ShuffledRanks`.
    """

    ranks: int
    seed: int

    def __post_init__(self) -> None:
        check_ranks(self.ranks)

    def __call__(self, tokens: Tokens, clusters: Clusters, selection: Selection) -> Allocation:
        labels = clusters.labels[selection.rows]
        mixed = np.random.default_rng(self.seed).permutation(len(labels))
        rank = np.empty(len(labels), dtype=np.int64)
        rank[mixed[np.argsort(labels[mixed], kind="stable")]] = np.arange(len(labels)) % self.ranks
        return deal(selection, labels, rank, share_weights(labels, clusters.sizes), self.ranks)
