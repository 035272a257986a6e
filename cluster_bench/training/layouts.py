"""How the rows of every rank are cut into the steps of an epoch: one function per layout.

A layout returns, for each rank, one part per step, and every row in one part. The layouts that go by
tokens cut parts of unequal rows and put them in one random order, the same for all ranks: so every row
stands at each step with the same chance, whatever its length, and ranks meet in a step with like tokens.
Axes: m rows of the allocation, s steps.
"""

from collections.abc import Callable, Mapping
from itertools import combinations

import numpy as np
from jaxtyping import Float64, Int64

from cluster_bench.artifacts import Allocation, Array

Rows = Int64[Array, " _"]  # of one rank, or of one of its steps
Layout = Callable[[list[Rows], Allocation, int, list[int]], list[list[Rows]]]

ROUNDS = 4  # of levelling every rank against the others
PASSES = 40  # over the steps of a rank in one round
PATIENCE = 10  # passes without an exchange
FEW = 4  # rows of a step, up to which two may go at once: one row alone seldom fits then
NEAR = 0.005  # of a rank's mean tokens a step: closer is not looked for


def shuffled(own: list[Rows], allocation: Allocation, steps: int, seed: list[int]) -> list[list[Rows]]:
    """Every rank's rows at random, in parts as even in rows as can be."""
    return [
        np.array_split(np.random.default_rng([*seed, rank]).permutation(mine), steps)
        for rank, mine in enumerate(own)
    ]


def sorted_by_length(
    own: list[Rows], allocation: Allocation, steps: int, seed: list[int]
) -> list[list[Rows]]:
    """Rows of like length in one step on all ranks; ties and the order of the steps are random."""
    lengths = _lengths(allocation)
    parts: list[list[Rows]] = []
    for rank, mine in enumerate(own):
        mixed = np.random.default_rng([*seed, rank]).permutation(mine)
        parts.append(np.array_split(mixed[np.argsort(lengths[mixed], kind="stable")], steps))
    return _in_random_order(parts, lengths, seed)


def balanced(own: list[Rows], allocation: Allocation, steps: int, seed: list[int]) -> list[list[Rows]]:
    """Random parts, then rows exchanged between a rank's steps until all ranks have like tokens in each."""
    labels = np.zeros(len(allocation.rows), np.int64)
    return _levelled(own, labels, allocation, steps, seed)


def stratified(own: list[Rows], allocation: Allocation, steps: int, seed: list[int]) -> list[list[Rows]]:
    """As `balanced`, from parts that share out the rows of every cluster evenly over the steps."""
    if allocation.cluster is None:
        raise ValueError("allocation: layout 'stratified' needs the cluster of every row")
    return _levelled(own, allocation.cluster, allocation, steps, seed)


LAYOUTS: Mapping[str, Layout] = {
    "shuffled": shuffled,
    "sorted": sorted_by_length,
    "balanced": balanced,
    "stratified": stratified,
}


def _levelled(
    own: list[Rows], labels: Int64[Array, " m"], allocation: Allocation, steps: int, seed: list[int]
) -> list[list[Rows]]:
    """Level the ranks one after the other, those with the fewest rows first: the others can follow them."""
    lengths = _lengths(allocation)
    rng = [np.random.default_rng([*seed, rank]) for rank in range(len(own))]
    bins = [_dealt(mine, labels, steps, rng[rank]) for rank, mine in enumerate(own)]
    loads = np.array([[lengths[part].sum() for part in parts] for parts in bins], dtype=np.float64)
    known: list[int] = []
    for _ in range(ROUNDS):
        for rank in sorted(range(len(own)), key=lambda rank: len(own[rank])):
            others = [other for other in known if other != rank]
            shape = loads[others].max(axis=0) if others else np.ones(steps)
            target = shape * loads[rank].sum() / shape.sum()
            _level(bins[rank], lengths, target, rng[rank])
            loads[rank] = [lengths[part].sum() for part in bins[rank]]
            known.append(rank)
    parts = [[np.array(part, dtype=np.int64) for part in rank_bins] for rank_bins in bins]
    return _in_random_order(parts, lengths, seed)


def _dealt(mine: Rows, labels: Int64[Array, " m"], steps: int, rng: np.random.Generator) -> list[list[int]]:
    """Deal rows at random over the steps, as evenly as can be in all and of each label."""
    mixed = rng.permutation(mine)
    mixed = mixed[np.argsort(rng.permutation(labels.max() + 1)[labels[mixed]], kind="stable")]
    bins: list[list[int]] = [[] for _ in range(steps)]
    for start in range(0, len(mixed), steps):
        for step, row in zip(rng.permutation(steps), mixed[start : start + steps].tolist(), strict=False):
            bins[step].append(row)
    return bins


def _level(
    bins: list[list[int]], lengths: Int64[Array, " m"], target: Float64[Array, " s"], rng: np.random.Generator
) -> None:
    """Exchange rows between steps above and below their target, as long as that brings both nearer to it."""
    loads = np.array([lengths[part].sum() for part in bins], dtype=np.float64)
    near = NEAR * target.mean()
    idle = 0  # passes in a row that changed nothing
    for count in range(PASSES):
        gap = loads - target
        order = np.argsort(gap, kind="stable")
        below, above = order[: len(bins) // 2], order[::-1][: len(bins) // 2]
        if count % 2:  # what the extremes could not give each other, others may
            above = rng.permutation(above)
        if idle == PATIENCE or np.abs(gap).max(initial=0) <= near:
            break
        idle += 1
        for low, high in zip(below, above, strict=True):
            wanted = float(gap[high] - gap[low]) / 2
            if wanted > near / 2 and (moved := _exchange(bins[high], bins[low], lengths, wanted)):
                loads[high] -= moved
                loads[low] += moved
                idle = 0


def _exchange(high: list[int], low: list[int], lengths: Int64[Array, " m"], wanted: float) -> int:
    """Give rows of one step for rows of another, so that as nearly as can be the wanted tokens go over.

    Returns the tokens that went: 0 where none bring both nearer to their target, or one would be left without
    a row.
    """
    (given, here), (taken, there) = _choices(high, lengths), _choices(low, lengths)
    moved = here[:, None] - there[None, :]
    grown = (
        np.array([len(rows) for rows in taken])[None, :] - np.array([len(rows) for rows in given])[:, None]
    )
    miss = np.abs(moved - wanted)
    miss[(len(high) + grown < 1) | (len(low) - grown < 1)] = np.inf
    give, take = np.unravel_index(miss.argmin(), miss.shape)
    if miss[give, take] >= wanted:
        return 0
    high[:] = [row for row in high if row not in given[give]] + taken[take]
    low[:] = [row for row in low if row not in taken[take]] + given[give]
    return int(moved[give, take])


def _choices(part: list[int], lengths: Int64[Array, " m"]) -> tuple[list[list[int]], Int64[Array, " c"]]:
    """What a step can give away, and its tokens: no row, any one, and any two where there are few."""
    sizes: list[int] = lengths[part].tolist()
    rows, tokens = [[], *([row] for row in part)], [0, *sizes]
    if len(part) <= FEW:
        rows += [list(pair) for pair in combinations(part, 2)]
        tokens += [sum(pair) for pair in combinations(sizes, 2)]
    return rows, np.array(tokens, dtype=np.int64)


def _in_random_order(
    parts: list[list[Rows]], lengths: Int64[Array, " m"], seed: list[int]
) -> list[list[Rows]]:
    """Shuffle the steps, on all ranks alike; longest row first in each, so that micro-batches pad little."""
    order = np.random.default_rng([*seed, len(parts)]).permutation(len(parts[0]))
    return [[part[np.lexsort((part, -lengths[part]))] for part in (mine[s] for s in order)] for mine in parts]


def _lengths(allocation: Allocation) -> Int64[Array, " m"]:
    if allocation.lengths is None:
        raise ValueError(f"allocation: layout {allocation.layout!r} needs the tokens of every row")
    return np.asarray(allocation.lengths)
