"""No clusters: the whole corpus as one, for methods that look at none."""

import time

import numpy as np
from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Clusters, Features
from cluster_bench.clusters.nearest import nearest


@dataclass(frozen=True, config=STRICT)
class OneCluster:
    """Every row with a feature in cluster 0, around their mean."""

    def __call__(self, features: Features) -> Clusters:
        started = time.perf_counter()
        known = features.norms > 0
        if not known.any():
            raise ValueError(f"clusters: none of {len(known)} rows has a feature; check the features' norms")
        center = features.values.mean(axis=0, dtype=np.float64, where=known[:, None]).astype(np.float32)
        _, gaps = nearest(features.values, center[None], 1)
        return Clusters(
            labels=np.where(known, 0, -1),
            centers=center[None],
            distances=np.where(known, gaps[:, 0], np.float32(0)),
            overflow=np.zeros(len(known), dtype=np.bool_),
            seconds=time.perf_counter() - started,
        )
