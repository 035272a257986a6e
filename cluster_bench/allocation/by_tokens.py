"""Longest-processing-time assignment: the longest cluster first, to the rank that has the fewest tokens."""

import heapq

import numpy as np
from jaxtyping import Int64

from cluster_bench.artifacts import Array

Pile = tuple[int, int, Int64[Array, " b"] | None]  # minus its tokens, cluster, rows where it was cut


def deal_by_tokens(
    lengths: Int64[Array, " m"],
    labels: Int64[Array, " m"],
    ranks: int,
    slack: float | None,
    rng: np.random.Generator,
) -> Int64[Array, " m"]:
    """The rank of each row: whole clusters, as long as no rank gets over 1 + slack of its share of tokens.

    A cluster that would take a rank further is cut: rows of it at random fill the rank, the rest waits for
    its turn as a shorter cluster. A slack of None cuts nothing.
    """
    share = lengths.sum() / ranks
    totals = np.bincount(labels, weights=lengths).astype(np.int64)
    rank = np.full(len(labels), -1)
    home = np.full(len(totals), -1)
    loads = np.zeros(ranks, np.int64)
    piles: list[Pile] = [(-int(total), cluster, None) for cluster, total in enumerate(totals) if total]
    heapq.heapify(piles)
    while piles:
        tokens, cluster, rows = heapq.heappop(piles)
        to = int(loads.argmin())
        room = share - loads[to]
        if slack is not None and -tokens > room + slack * share:
            rows = rng.permutation(np.flatnonzero(labels == cluster)) if rows is None else rows
            rows, rest = _filling(rows, lengths, room)
            filled = int(lengths[rows].sum())
            if len(rest):
                heapq.heappush(piles, (tokens + filled, cluster, rest))
                tokens = -filled
        if rows is None:
            home[cluster] = to
        else:
            rank[rows] = to
        loads[to] -= tokens
    rank = np.where(rank < 0, home[labels], rank)
    return rank if slack is None else _enough_rows(rank, lengths, ranks, rng)


def _filling(
    rows: Int64[Array, " b"], lengths: Int64[Array, " m"], room: float
) -> tuple[Int64[Array, " f"], Int64[Array, " r"]]:
    """Cut rows in two: the first that fit into the room with the one that fills it best, and the rest."""
    filled = np.cumsum(lengths[rows])
    cut = int(np.searchsorted(filled, room, "right"))
    left = room - (filled[cut - 1] if cut else 0)
    best = cut + int(np.abs(lengths[rows[cut:]] - left).argmin())
    if not cut or abs(lengths[rows[best]] - left) < left:
        rows = np.concatenate([rows[:cut], rows[[best]], np.delete(rows[cut:], best - cut)])
        cut += 1
    return rows[:cut], rows[cut:]


def _enough_rows(
    rank: Int64[Array, " m"], lengths: Int64[Array, " m"], ranks: int, rng: np.random.Generator
) -> Int64[Array, " m"]:
    """Give a rank of few long rows several short ones for its longest, until it has half its share of rows.

    A rank with fewer rows than steps could not take part in each.
    """
    least = max(1, len(rank) // (2 * ranks))
    while (counts := np.bincount(rank, minlength=ranks)).min() < least:
        mine = np.flatnonzero(rank == counts.argmin())
        theirs = rng.permutation(np.flatnonzero(rank == counts.argmax()))
        given = mine[np.argsort(-lengths[mine], kind="stable")[:1]]
        taken = max(int(np.searchsorted(np.cumsum(lengths[theirs]), lengths[given].sum())), len(given) + 1)
        if taken >= len(theirs):
            break
        rank[theirs[:taken]], rank[given] = counts.argmin(), counts.argmax()
    return rank
