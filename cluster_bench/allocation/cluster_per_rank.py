"""The paper's allocation: every rank sees its own clusters only."""

from pydantic.dataclasses import dataclass

from cluster_bench.allocation.deal import check_ranks, deal, row_weights
from cluster_bench.artifacts import STRICT, Allocation, Clusters, Selection, Tokens


@dataclass(frozen=True, config=STRICT)
class ClusterPerRank:
    """Cluster c goes to rank c modulo the ranks; weights give each cluster back its share of the corpus.

    Raises ValueError when the clusters do not divide over the ranks, or a rank's clusters have no
    selected row.
    """

    ranks: int
    weighted: bool = True  # off is the paper's ablation: every row counts the same

    def __post_init__(self) -> None:
        check_ranks(self.ranks)

    def __call__(self, tokens: Tokens, clusters: Clusters, selection: Selection) -> Allocation:
        k = len(clusters.centers)
        if k % self.ranks:
            raise ValueError(
                f"allocation.ranks: {k} clusters do not divide over {self.ranks} ranks;"
                f" make clusters.k a multiple of {self.ranks}"
            )
        labels = clusters.labels[selection.rows]
        weight = row_weights(labels, clusters.sizes, self.weighted)
        return deal(selection, labels, labels % self.ranks, weight, self.ranks)
