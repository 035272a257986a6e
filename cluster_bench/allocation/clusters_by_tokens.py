"""Many clusters per rank, dealt by tokens, so that no rank waits for another."""

import dataclasses

import numpy as np
from pydantic.dataclasses import dataclass

from cluster_bench.allocation.by_tokens import deal_by_tokens
from cluster_bench.allocation.deal import check_ranks, deal, row_weights
from cluster_bench.artifacts import STRICT, Allocation, Clusters, Selection, Tokens


@dataclass(frozen=True, config=STRICT)
class ClustersByTokens:
    """The longest cluster first, to the rank with the fewest tokens; one too long for its rank is cut.

    A row of t tokens counts as row_cost + t + square_cost t^2 of them: what it takes as measured.

    With as many clusters as ranks it is `ClusterPerRank` but for the rows that long clusters have too many.
    The n_c of N corpus rows of cluster c weigh w_i = (n_c / N) / (m_c / m) on each of its m_c of m selected
    rows, K n_c / N where the m_c are equal; so (1 / m) sum_i w_i g_i = sum_c (n_c / N) (mean gradient of c),
    whichever rank has which row.
    """

    ranks: int
    weighted: bool
    slack: float | None  # how far above its share of tokens a rank may be, as a share; None cuts no cluster
    row_cost: float  # tokens that any row counts as beside its own
    square_cost: float  # tokens per squared token: attention
    seed: int  # of the rows that a cut cluster gives away

    def __post_init__(self) -> None:
        check_ranks(self.ranks)
        if self.slack is not None and self.slack < 0:
            raise ValueError(f"slack must not be below 0, got {self.slack}")
        if min(self.row_cost, self.square_cost) < 0:
            raise ValueError(
                f"row_cost and square_cost must not be below 0, got {self.row_cost} and {self.square_cost}"
            )

    def __call__(self, tokens: Tokens, clusters: Clusters, selection: Selection) -> Allocation:
        labels, lengths = clusters.labels[selection.rows], tokens.lengths[selection.rows]
        costs = np.rint(self.row_cost + lengths + self.square_cost * lengths**2).astype(np.int64)
        rng = np.random.default_rng(self.seed)
        rank = deal_by_tokens(costs, labels, self.ranks, self.slack, rng)
        weight = row_weights(labels, clusters.sizes, self.weighted)
        allocation = deal(selection, labels, rank, weight, self.ranks)
        return dataclasses.replace(allocation, layout="stratified", lengths=costs)
