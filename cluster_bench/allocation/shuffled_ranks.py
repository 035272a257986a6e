"""The exact control for cluster-per-rank: its global batches, on other ranks."""

import dataclasses

from pydantic.dataclasses import dataclass

from cluster_bench.allocation.cluster_per_rank import ClusterPerRank
from cluster_bench.allocation.deal import check_ranks
from cluster_bench.artifacts import STRICT, Allocation, Clusters, Selection, Tokens


@dataclass(frozen=True, config=STRICT)
class ShuffledRanks:
    """As `ClusterPerRank`, but the training plan deals the rows of every global batch to the ranks anew.

    Under averaged gradients only the global batch matters, so this must train the same model to rounding.
    """

    ranks: int

    def __post_init__(self) -> None:
        check_ranks(self.ranks)

    def __call__(self, tokens: Tokens, clusters: Clusters, selection: Selection) -> Allocation:
        return dataclasses.replace(ClusterPerRank(self.ranks)(tokens, clusters, selection), mixed=True)
