"""The plan: which rank sees which rows at which step. Built once, hashed, the same on all ranks.

Axes: e exposures (a row trained on once), s steps over all epochs, r ranks.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64

from cluster_bench.artifacts import Allocation, Array
from cluster_bench.training.layouts import LAYOUTS


@dataclass(frozen=True)
class Plan:
    """Batch of (step, rank): the slice offsets[step * ranks + rank : ... + 1] of rows and weights.

    Raises ValueError when the boundaries are not those of equally many steps for every rank.
    """

    rows: Int64[Array, " e"]
    weights: Float64[Array, " e"]
    offsets: Int64[Array, " bounds"]  # s * r + 1 of them
    ranks: int

    def __post_init__(self) -> None:
        if (len(self.offsets) - 1) % self.ranks:
            raise ValueError(
                f"plan: {len(self.offsets) - 1} batches are not equal steps for {self.ranks} ranks"
            )
        ends = (self.offsets[0], self.offsets[-1], len(self.weights))
        if ends != (0, len(self.rows), len(self.rows)) or (np.diff(self.offsets) < 0).any():
            raise ValueError(f"plan: its boundaries do not cut its {len(self.rows)} exposures into batches")

    @property
    def steps(self) -> int:
        """Optimizer steps, the same for every rank by construction."""
        return (len(self.offsets) - 1) // self.ranks

    @property
    def hash(self) -> str:
        """SHA-256 of every row, weight and boundary: equal hashes mean equal training."""
        digest = hashlib.sha256(f"{self.ranks}".encode())
        for array in (self.rows, self.weights, self.offsets):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]

    def batch(self, step: int, rank: int) -> tuple[Int64[Array, " b"], Float64[Array, " b"]]:
        """Rows and weights that a rank trains on at a step."""
        at = step * self.ranks + rank
        part = slice(self.offsets[at], self.offsets[at + 1])
        return self.rows[part], self.weights[part]

    def step_rows(self, step: int) -> Int64[Array, " b"]:
        """Rows of the global batch of a step, all ranks."""
        return self.rows[self.offsets[step * self.ranks] : self.offsets[(step + 1) * self.ranks]]

    def save(self, path: Path) -> None:
        """Write the plan as one `.npz` file."""
        np.savez(path, rows=self.rows, weights=self.weights, offsets=self.offsets, ranks=self.ranks)

    @classmethod
    def load(cls, path: Path) -> "Plan":
        """Read what `save` wrote."""
        with np.load(path) as data:
            return cls(data["rows"], data["weights"], data["offsets"], int(data["ranks"]))


def build_plan(allocation: Allocation, epochs: int, global_batch: int, seed: int) -> Plan:
    """Lay out every epoch as a pure function of (allocation, seed, epoch).

    Each epoch the allocation's layout cuts every rank's rows into the same number of parts; so all ranks
    step equally often and each row is seen once an epoch.

    `shuffled` cuts at random, as evenly in rows as can be and none larger than global_batch / ranks; clusters
    of one size then stand in every global batch in equal numbers. The other layouts go by tokens: of the m
    rows each of the s steps has about m / s, global_batch at most but for rounding, and the loop, which
    divides by the b rows of the batch, gets the weights w_i b s / m. So a step's gradient is
    (s / m) sum_i w_i g_i over its rows: as each row stands at each step with chance 1 / s, it is
    (1 / m) sum_i w_i g_i on average, exactly, however many rows tokens allow to a step.

    An allocation that asks for it (`mixed`) deals each global batch to the ranks anew: the same batches,
    shuffled ranks. Raises ValueError when the batch does not divide over the ranks, or a rank has no rows,
    or fewer than there are steps by tokens.
    """
    ranks, m = allocation.ranks, len(allocation.rows)
    if global_batch < 1 or global_batch % ranks:
        raise ValueError(f"global_batch {global_batch} does not divide over {ranks} ranks")
    own = [np.flatnonzero(allocation.rank == rank) for rank in range(ranks)]
    layout = LAYOUTS.get(allocation.layout)
    if layout is None:
        raise ValueError(f"allocation: layout {allocation.layout!r} is not one of {', '.join(LAYOUTS)}")
    by_tokens = allocation.layout != "shuffled"
    steps = _steps(own, global_batch, by_tokens)
    batches: list[Int64[Array, " b"]] = []
    for epoch in range(epochs):
        parts = layout(own, allocation, steps, [seed, epoch])
        for step in range(steps):
            batch = [parts[rank][step] for rank in range(ranks)]
            batches += _dealt_anew(batch, [seed, epoch, step]) if allocation.mixed else batch
    exposures = np.concatenate([np.empty(0, np.int64), *batches])
    offsets = np.cumsum([0, *map(len, batches)]).astype(np.int64)
    weights = allocation.weight[exposures].astype(np.float64)
    if by_tokens:
        counts = np.diff(offsets[::ranks])
        weights *= np.repeat(counts * steps / m, counts)
    return Plan(allocation.rows[exposures], weights, offsets, ranks)


def _steps(own: list[Int64[Array, " _"]], global_batch: int, by_tokens: bool) -> int:
    """Steps of an epoch, or which rank cannot take them all."""
    counts = [len(mine) for mine in own]
    fewest, ranks = int(np.argmin(counts)), len(counts)
    if not counts[fewest]:
        raise ValueError(f"allocation: rank {fewest} of {ranks} has no rows out of {sum(counts)}")
    if not by_tokens:
        return -(-max(counts) // (global_batch // ranks))
    steps = -(-sum(counts) // global_batch)
    if counts[fewest] < steps:
        raise ValueError(
            f"allocation: rank {fewest} of {ranks} has {counts[fewest]} rows for {steps} steps;"
            f" raise training.global_batch above {global_batch}, or lower ranks"
        )
    return steps


def _dealt_anew(batch: list[Int64[Array, " _"]], seed: list[int]) -> list[Int64[Array, " _"]]:
    cuts = np.cumsum([len(part) for part in batch])[:-1]
    return np.split(np.random.default_rng([*seed, 1]).permutation(np.concatenate(batch)), cuts)
