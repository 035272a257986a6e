"""The plan: which rank sees which rows at which step. Built once, hashed, the same on all ranks.

Axes: e exposures (a row trained on once), s steps over all epochs, r ranks.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64

from cluster_bench.artifacts import Allocation, Array


@dataclass(frozen=True)
class Plan:
    """Batch of (step, rank): the slice offsets[step * ranks + rank : ... + 1] of rows and weights."""

    rows: Int64[Array, " e"]
    weights: Float64[Array, " e"]
    offsets: Int64[Array, " bounds"]  # s * r + 1 of them
    ranks: int

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

    Each epoch every rank shuffles its own rows and cuts them into the same number of parts, as even as can
    be and none larger than global_batch / ranks; so all ranks step equally often, each row is seen once an
    epoch, and clusters of one size stand in every global batch in equal numbers. An allocation that asks
    for it (`mixed`) then deals each global batch to the ranks anew: the same batches, shuffled ranks.
    Raises ValueError when a rank has no rows.
    """
    ranks = allocation.ranks
    own = [np.flatnonzero(allocation.rank == rank) for rank in range(ranks)]
    empty = [rank for rank, mine in enumerate(own) if not len(mine)]
    if empty:
        raise ValueError(f"allocation: rank {empty[0]} of {ranks} has no rows out of {len(allocation.rows)}")
    steps = -(-max(len(mine) for mine in own) // (global_batch // ranks))
    batches: list[Int64[Array, " b"]] = []
    for epoch in range(epochs):
        parts = [
            np.array_split(np.random.default_rng([seed, epoch, rank]).permutation(mine), steps)
            for rank, mine in enumerate(own)
        ]
        for step in range(steps):
            batch = [parts[rank][step] for rank in range(ranks)]
            batches += _dealt_anew(batch, [seed, epoch, step]) if allocation.mixed else batch
    exposures = np.concatenate([np.empty(0, np.int64), *batches])
    offsets = np.cumsum([0, *map(len, batches)]).astype(np.int64)
    weights = allocation.weight[exposures].astype(np.float64)
    return Plan(allocation.rows[exposures], weights, offsets, ranks)


def _dealt_anew(batch: list[Int64[Array, " b"]], seed: list[int]) -> list[Int64[Array, " b"]]:
    cuts = np.cumsum([len(part) for part in batch])[:-1]
    return np.split(np.random.default_rng([*seed, 1]).permutation(np.concatenate(batch)), cuts)
