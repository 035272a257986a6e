"""Squared Euclidean distances between rows and centers."""

import numpy as np
from jaxtyping import Float32, Int64

from cluster_bench.artifacts import Array

BLOCK = 1024  # rows at a time, so that neither n x k nor a float64 copy of the features is ever in memory


def nearest(
    values: Float32[Array, "n d"], centers: Float32[Array, "k d"], width: int
) -> tuple[Int64[Array, "n w"], Float32[Array, "n w"]]:
    """Find the `width` nearest centers of each row, nearest first, and how far they are, squared.

    Sums in float64 and rounds once: equal rows get equal distances wherever they stand. Equally far
    centers come in their own order.
    """
    near = np.empty((len(values), width), dtype=np.int64)
    gaps = np.empty((len(values), width), dtype=np.float32)
    wide = centers.astype(np.float64)
    for start in range(0, len(values), BLOCK):
        block = values[start : start + BLOCK].astype(np.float64)
        squares = np.square(block).sum(axis=1)[:, None] + np.square(wide).sum(axis=1) - 2 * block @ wide.T
        gap = np.maximum(squares, 0).astype(np.float32)
        order = np.argsort(gap, axis=1, kind="stable")[:, :width]
        near[start : start + BLOCK] = order
        gaps[start : start + BLOCK] = np.take_along_axis(gap, order, axis=1)
    return near, gaps
