"""k-means whose clusters cannot grow without limit nor shrink without notice."""

import math
import time
import warnings
from importlib import import_module
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64
from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Array, Clusters, Features
from cluster_bench.clusters.cap import assign


@dataclass(frozen=True, config=STRICT)
class CappedKMeans:
    """k-means++ and Lloyd, then no cluster above `alpha` times the mean size: the paper's clusters.

    Rows of norm 0 are in no cluster (label -1) and count nowhere. Raises ValueError when there are more
    clusters than rows to cluster, and when a cluster ends below the floor: then every cluster would be
    cut down to a handful of outliers.
    """

    k: int
    alpha: float | None  # largest cluster, of N/k rows; null for no cap
    restarts: int
    iterations: int  # at most, of each restart
    seed: int
    min_share: float  # smallest cluster, of N/k rows, in [0, 1); 0 for no floor

    def __post_init__(self) -> None:
        for name, value in (("k", self.k), ("restarts", self.restarts), ("iterations", self.iterations)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.alpha is not None and not 1 <= self.alpha < math.inf:
            raise ValueError(f"alpha must be at least 1, or not every row has a cluster, got {self.alpha}")
        if not 0 <= self.min_share < 1:
            raise ValueError(f"min_share must be in [0, 1), got {self.min_share}")

    def __call__(self, features: Features) -> Clusters:
        import_module("sklearn.cluster")  # before the limit, which holds for libraries already loaded
        limits: Any = import_module("threadpoolctl").threadpool_limits
        started = time.perf_counter()
        rows = clustered_rows(features)
        if self.k > len(rows):
            raise ValueError(
                f"clusters.k: {self.k} clusters for {len(rows)} rows with a feature"
                f" (of {len(features.norms)}); lower k"
            )
        with limits(1):  # several threads add up in another order each time: other bytes from the same run
            values = features.values if len(rows) == len(features.norms) else features.values[rows]
            centers = self.centers(values)
            labels, distances, overflow = assign(values, centers, self.cap(len(rows)))
        self.check_floor(np.bincount(labels, minlength=self.k))
        n = len(features.norms)
        return Clusters(
            labels=spread(labels, rows, n, -1),
            centers=centers,
            distances=spread(distances, rows, n, 0),
            overflow=spread(overflow, rows, n, False),
            seconds=time.perf_counter() - started,
        )

    def centers(self, values: Float32[Array, "n d"]) -> Float32[Array, "k d"]:
        """Estimate the centers: the best of `restarts` by inertia."""
        means: Any = import_module("sklearn.cluster").KMeans(
            self.k,
            init="k-means++",
            n_init=self.restarts,
            max_iter=self.iterations,
            random_state=self.seed,
        )
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message="Number of distinct clusters"
            )  # too few distinct rows: check_floor tells
            return np.asarray(means.fit(values).cluster_centers_, dtype=np.float32)

    def cap(self, n: int) -> int:
        """Return the most rows a cluster of `n` rows in all may have.

        Where the largest cluster is within alpha N/k no row is refused, so the rule needs no condition.
        """
        return n if self.alpha is None else math.ceil(round(self.alpha * n / self.k, 6))

    def check_floor(self, sizes: Int64[Array, " k"]) -> None:
        """Refuse clusters too small to stand for anything."""
        smallest = int(sizes.argmin())
        floor = self.min_share * sizes.sum() / self.k
        if sizes[smallest] == 0:
            raise ValueError(
                f"clusters.k: cluster {smallest} of {self.k} is empty, as {sizes.sum()} rows have too few"
                f" distinct features; lower k"
            )
        if sizes[smallest] < floor:
            raise ValueError(
                f"clusters.min_share: cluster {smallest} has {sizes[smallest]} rows, below the floor of"
                f" {floor:.1f} = min_share {self.min_share} x {sizes.sum()} rows / {self.k} clusters;"
                f" lower min_share or k"
            )


def clustered_rows(features: Features) -> Int64[Array, " m"]:
    """Return the rows that have a feature, or refuse features with a value that is not a number."""
    if not np.isfinite(features.norms).all():
        wrong = int(np.flatnonzero(~np.isfinite(features.norms))[0])
        raise ValueError(f"features: the norm of row {wrong} is {features.norms[wrong]}; extract in float32")
    return np.flatnonzero(features.norms)


def spread(part: Array, rows: Int64[Array, " m"], n: int, missing: int) -> Array:
    """Return `part` at `rows` of an array of n, and `missing` elsewhere."""
    whole = np.full(n, missing, dtype=part.dtype)
    whole[rows] = part
    return whole
