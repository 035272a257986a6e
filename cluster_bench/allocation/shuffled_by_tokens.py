"""Ordinary data parallelism without waiting: random rows, as many tokens for every rank in every step."""

import dataclasses

import numpy as np
from pydantic.dataclasses import dataclass

from cluster_bench.allocation.by_tokens import deal_by_tokens
from cluster_bench.allocation.deal import check_ranks, deal, row_weights
from cluster_bench.artifacts import STRICT, Allocation, Clusters, Selection, Tokens


@dataclass(frozen=True, config=STRICT)
class ShuffledByTokens:
    """As `Shuffled`, but ranks have equally many tokens, in all and, as far as rows allow, in each step."""

    ranks: int
    weighted: bool
    seed: int

    def __post_init__(self) -> None:
        check_ranks(self.ranks)

    def __call__(self, tokens: Tokens, clusters: Clusters, selection: Selection) -> Allocation:
        labels, lengths = clusters.labels[selection.rows], tokens.lengths[selection.rows]
        one = np.zeros(len(labels), np.int64)
        rank = deal_by_tokens(lengths, one, self.ranks, 0.0, np.random.default_rng(self.seed))
        weight = row_weights(labels, clusters.sizes, self.weighted)
        allocation = deal(selection, labels, rank, weight, self.ranks)
        return dataclasses.replace(allocation, layout="balanced", lengths=lengths)
