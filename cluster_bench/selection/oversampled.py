"""The paper's `uniform` baseline: balance by repeating instead of dropping."""

from dataclasses import InitVar

import numpy as np
from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Clusters, Selection, Tokens


@dataclass(frozen=True, config=STRICT)
class Oversampled:
    """Every cluster repeated until it is as large as the largest.

    Each row comes equally often, but for a random few that come once more to fill up.
    """

    seed: int
    ratio: InitVar[float | None] = None  # accepted, so that one sweep can cross all methods; counts nowhere

    def __call__(self, tokens: Tokens, clusters: Clusters) -> Selection:
        sizes = clusters.sizes
        if not sizes.all():
            raise ValueError(
                f"selection: cluster {sizes.argmin()} is empty and cannot be repeated; lower clusters.k"
            )
        rows = np.random.default_rng(self.seed).permutation(np.flatnonzero(clusters.labels >= 0))
        order = rows[np.argsort(clusters.labels[rows], kind="stable")]
        labels = clusters.labels[order]
        place = np.arange(len(order)) - (np.cumsum(sizes) - sizes)[labels]  # within the own cluster
        times = sizes.max() // sizes[labels] + (place < sizes.max() % sizes[labels])
        return Selection(np.sort(np.repeat(order, times)), uses_features=True)
