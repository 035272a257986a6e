"""Full data: nothing is left out."""

from dataclasses import InitVar

import numpy as np
from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Clusters, Selection, Tokens


@dataclass(frozen=True, config=STRICT)
class Everything:
    """Every row that is in a cluster."""

    ratio: InitVar[float | None] = None  # accepted, so that one sweep can cross all methods; counts nowhere

    def __call__(self, tokens: Tokens, clusters: Clusters) -> Selection:
        return Selection(np.flatnonzero(clusters.labels >= 0), uses_features=False)
