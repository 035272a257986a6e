"""The paper's selection: the same number of rows from every cluster."""

import math
from typing import Literal

import numpy as np
from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Clusters, Selection, Tokens

Keep = Literal["far", "near", "random", "half"]


@dataclass(frozen=True, config=STRICT)
class Balanced:
    """From every cluster floor(ratio x the smallest cluster) rows, by their distance to its center.

    `far` is the paper's rule; `near`, `random` and `half` (half nearest, half farthest, the odd one
    farthest) are its ablations. Between equally far rows the earlier one goes first.
    Raises ValueError when that number is 0.
    """

    ratio: float  # of the smallest cluster, in (0, 1]
    keep: Keep
    seed: int  # of `random`

    def __post_init__(self) -> None:
        check_ratio(self.ratio)

    def __call__(self, tokens: Tokens, clusters: Clusters) -> Selection:
        quota, sizes = self.quota(clusters), clusters.sizes
        rows = np.flatnonzero(clusters.labels >= 0)
        labels, gap = clusters.labels[rows], clusters.distances[rows]
        if self.keep == "random":
            key = np.random.default_rng(self.seed).permutation(len(rows))
        else:
            key = -gap if self.keep == "far" else gap
        first = quota // 2 if self.keep == "half" else quota
        order = np.lexsort((rows, key, labels))
        place = np.arange(len(rows)) - (np.cumsum(sizes) - sizes)[labels[order]]  # within the own cluster
        kept = (place < first) | (place >= sizes[labels[order]] - (quota - first))
        return Selection(np.sort(rows[order[kept]]), uses_features=True)

    def quota(self, clusters: Clusters) -> int:
        """Return the number of rows to keep of each cluster."""
        smallest = int(clusters.sizes.argmin())
        size = int(clusters.sizes[smallest])
        quota = math.floor(round(self.ratio * size, 6))  # 0.29 of 100 is 29, though 0.29 * 100 is not
        if not quota:
            raise ValueError(
                f"selection.ratio: {self.ratio} of the smallest cluster ({smallest}, of {size} rows) is less"
                f" than 1 row; raise ratio or lower clusters.k"
            )
        return quota


def check_ratio(ratio: float) -> None:
    """Refuse a ratio that is no share of the smallest cluster."""
    if not 0 < ratio <= 1:
        raise ValueError(f"ratio must be in (0, 1], got {ratio}")
