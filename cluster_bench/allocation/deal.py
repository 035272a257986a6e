"""What all allocators share: the weights, and the refusal of a rank without work."""

import numpy as np
from jaxtyping import Float32, Int64

from cluster_bench.artifacts import Allocation, Array, Selection


def deal(
    selection: Selection,
    labels: Int64[Array, " m"],
    rank: Int64[Array, " m"],
    weight: Float32[Array, " m"],
    ranks: int,
) -> Allocation:
    """Put the allocation together, or say which rank would have nothing to train on."""
    count = np.bincount(rank, minlength=ranks)
    if not count.all():
        raise ValueError(
            f"allocation.ranks: rank {count.argmin()} of {ranks} gets none of the {len(rank)} selected rows;"
            f" lower ranks or select more rows"
        )
    return Allocation(selection.rows, rank, weight, ranks, cluster=labels)


def check_ranks(ranks: int) -> None:
    """Refuse a number of ranks that is none."""
    if ranks < 1:
        raise ValueError(f"ranks must be at least 1, got {ranks}")


def share_weights(labels: Int64[Array, " m"], sizes: Int64[Array, " k"]) -> Float32[Array, " m"]:
    """Weigh each selected row by its cluster's share of the corpus over its share of the selection.

    `labels` are the clusters of the selected rows, `sizes` those before any selection. The weights average
    to 1, so a learning rate means the same with them as without; with equally many rows of each of k
    clusters they are the paper's k n_c / N. The share of a cluster without a selected row goes to the
    others, in proportion.

    >>> share_weights(np.array([0, 0, 1, 1]), sizes=np.array([30, 10]))
    array([1.5, 1.5, 0.5, 0.5], dtype=float32)
    """
    kept = np.bincount(labels, minlength=len(sizes))
    present = np.where(kept > 0, sizes, 0)
    weight = present / present.sum() * len(labels) / np.maximum(kept, 1)
    return weight.astype(np.float32)[labels]


def row_weights(
    labels: Int64[Array, " m"], sizes: Int64[Array, " k"], weighted: bool
) -> Float32[Array, " m"]:
    """As `share_weights`, or 1 for every row where an allocator is told not to weigh."""
    return share_weights(labels, sizes) if weighted else np.ones(len(labels), np.float32)
