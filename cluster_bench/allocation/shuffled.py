"""Ordinary data parallelism: ranks that know nothing of clusters."""

import numpy as np
from pydantic.dataclasses import dataclass

from cluster_bench.allocation.deal import check_ranks, deal, row_weights
from cluster_bench.artifacts import STRICT, Allocation, Clusters, Selection, Tokens


@dataclass(frozen=True, config=STRICT)
class Shuffled:
    """The rows dealt evenly and at random.

    Without weights this is how full data and random rows are trained on; with them it is the paper's
    method without its allocation.
    """

    ranks: int
    weighted: bool
    seed: int

    def __post_init__(self) -> None:
        check_ranks(self.ranks)

    def __call__(self, tokens: Tokens, clusters: Clusters, selection: Selection) -> Allocation:
        labels = clusters.labels[selection.rows]
        rank = np.random.default_rng(self.seed).permutation(np.arange(len(labels)) % self.ranks)
        weight = row_weights(labels, clusters.sizes, self.weighted)
        return deal(selection, labels, rank, weight, self.ranks)
