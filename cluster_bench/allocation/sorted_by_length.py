"""Rows of like length in one global batch: hardly any padding and even ranks, but batches of one kind."""

import dataclasses

import numpy as np
from pydantic.dataclasses import dataclass

from cluster_bench.allocation.deal import check_ranks, deal, row_weights
from cluster_bench.artifacts import STRICT, Allocation, Clusters, Selection, Tokens


@dataclass(frozen=True, config=STRICT)
class SortedByLength:
    """Rows in the order of their tokens dealt to the ranks to and fro; only the order of steps is random."""

    ranks: int
    weighted: bool

    def __post_init__(self) -> None:
        check_ranks(self.ranks)

    def __call__(self, tokens: Tokens, clusters: Clusters, selection: Selection) -> Allocation:
        labels, lengths = clusters.labels[selection.rows], tokens.lengths[selection.rows]
        to_and_fro = np.concatenate([np.arange(self.ranks), np.arange(self.ranks)[::-1]])
        rank = np.empty(len(labels), np.int64)
        rank[np.argsort(lengths, kind="stable")] = np.resize(to_and_fro, len(labels))
        weight = row_weights(labels, clusters.sizes, self.weighted)
        allocation = deal(selection, labels, rank, weight, self.ranks)
        return dataclasses.replace(allocation, layout="sorted", lengths=lengths)
