"""Giving every row a center when a center has room for only so many.

The rule: all (row, center) pairs over each row's 8 nearest centers are walked from the closest to the
farthest, ties by row and then by center; a row takes the first center that still has room. Rows left
over take, in their own order, the nearest center with room. Centers are not estimated again.
Source: the CluSTER paper's clustering step.
"""

import numpy as np
from jaxtyping import Bool, Float32, Int64

from cluster_bench.artifacts import Array
from cluster_bench.clusters.nearest import nearest

NEAREST = 8  # centers of each row that the walk considers


def assign(
    values: Float32[Array, "n d"], centers: Float32[Array, "k d"], cap: int
) -> tuple[Int64[Array, " n"], Float32[Array, " n"], Bool[Array, " n"]]:
    """Give each row a center, none more than `cap` rows.

    Returns the center of each row, the squared distance to it, and whether a nearer one was full.
    """
    k = len(centers)
    assert len(values) <= cap * k, "the cap leaves no room for some rows"
    near, gaps = nearest(values, centers, min(NEAREST, k))
    place = walk(near, gaps, cap)
    each, last = np.arange(len(values)), near.shape[1] - 1
    labels, distances = near[each, np.minimum(place, last)], gaps[each, np.minimum(place, last)]
    left = np.flatnonzero(place > last)
    if len(left):
        room = cap - np.bincount(labels[place <= last], minlength=k)
        for row, order, gap in zip(left, *nearest(values[left], centers, k), strict=True):
            first = np.argmax(room[order] > 0)
            labels[row], distances[row] = order[first], gap[first]
            room[order[first]] -= 1
    return labels, distances, place > 0


def walk(near: Int64[Array, "n w"], gaps: Float32[Array, "n w"], cap: int) -> Int64[Array, " n"]:
    """Say which of its nearest centers each row takes: 0 the nearest, w if all of them are full.

    Does not walk. Every row asks for its nearest center, each center keeps the `cap` closest that ask
    and refuses the others, who ask for their next. Rows and centers rank pairs by the same order, so
    there is one stable outcome, and it is the walk's; but it takes a few sorts of n, not a loop over
    n x w pairs.
    """
    place = np.zeros(len(near), dtype=np.int64)
    while True:
        asking = np.flatnonzero(place < near.shape[1])
        center, gap = near[asking, place[asking]], gaps[asking, place[asking]]
        order = np.lexsort((asking, gap, center))
        count = np.bincount(center)
        ahead = np.arange(len(asking)) - (np.cumsum(count) - count)[center[order]]
        refused = asking[order[ahead >= cap]]
        if not len(refused):
            return place
        place[refused] += 1
