"""One process that trains by either loop, without torchrun: the same parts in the same order."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int64

from cluster_bench.artifacts import Array, Machine, Model, Tokens
from cluster_bench.bench.clock import interleaved
from cluster_bench.bench.inputs import VOCABULARY
from cluster_bench.training.batches import Batch, pack, pad
from cluster_bench.training.learner import Learner, build_learner
from cluster_bench.training.packing import micro_batches
from cluster_bench.training.request import Request

BATCH = 32  # rows of a global batch
PACK = 1024  # tokens, when rows of one length are timed
FIELDS: dict[str, Any] = {
    "optimizer": "adamw",
    "lr": 1e-4,
    "weight_decay": 0.0,
    "dtype": "float32",
    "reduction": "rows",
}


@dataclass(frozen=True)
class Arm:
    """A loop over some rows; a call is an epoch."""

    learner: Learner
    tokens: Tokens
    rows: Int64[Array, " n"]
    loop: dict[str, Any]

    def batches(self, step_rows: Int64[Array, " b"], share: Float64[Array, " b"]) -> list[Batch]:
        """The micro-batches of a step."""
        lay = pack if "micro_tokens" in self.loop else pad
        parts = micro_batches(self.tokens.lengths[step_rows], self.loop)
        return [lay(self.tokens, step_rows[part], share[part], False, "cpu") for part in parts]

    def __call__(self) -> list[float]:
        losses: list[float] = []
        for step_rows in np.split(self.rows, range(BATCH, len(self.rows), BATCH)):
            share = np.full(len(step_rows), 1 / len(step_rows))
            parts = self.batches(step_rows, share)
            losses.append(sum(self.learner.add_gradient(batch).item() for batch in parts))
            self.learner.step(FIELDS["lr"], None)
        return losses

    @property
    def padding(self) -> float:
        """The share of the positions computed that hold no token."""
        steps = np.split(self.rows, range(BATCH, len(self.rows), BATCH))
        slots = sum(batch.ids.numel() for rows in steps for batch in self.batches(rows, np.ones(len(rows))))
        return 1 - int(self.tokens.lengths[self.rows].sum()) / slots


def arm(model: Model, tokens: Tokens, rows: Int64[Array, " n"], **micro: int) -> Arm:
    """An arm with a model of its own: `micro_batch` means the paper's loop, `micro_tokens` the fast one."""
    loop = {**FIELDS, **micro}
    kind = "fast" if "micro_tokens" in micro else "paper"
    return Arm(build_learner(Request("", str(model.weights), "", Machine(), kind, loop)), tokens, rows, loop)


def floor(model: Model, tokens: int) -> float:
    """Seconds of the matrix products alone, at the speed that one of that shape reaches here."""
    left, right = torch.randn(1024, 192), torch.randn(192, 448)
    best = interleaved({"product": lambda: left @ right}, 200)["product"].cpu
    return 6 * model.parameters * tokens * best / (2 * left.shape[0] * right.numel())


@dataclass(frozen=True)
class RowCost:
    """A cost table: seconds of forward and backward of a row by its tokens."""

    row: float
    token: float
    square: float  # of a squared token

    def __call__(self, lengths: Int64[Array, " n"]) -> Float64[Array, " n"]:
        return self.row + self.token * lengths + self.square * lengths**2

    @property
    def in_tokens(self) -> dict[str, float]:
        """The fields by which an allocation levels what rows take."""
        return {
            "row_cost": max(0.0, self.row / self.token),
            "square_cost": max(0.0, self.square / self.token),
        }


def row_cost(fast: Arm) -> RowCost:
    """Calibrated here on packs of rows of one length, by least squares of the relative error."""
    sizes = np.array([8, 16, 32, 64, 128, 256, 512])
    packs = {str(size): partial(fast.learner.add_gradient, _equal_rows(size)) for size in sizes.tolist()}
    times = interleaved(packs, 5)
    seconds = np.array([times[str(size)].cpu / (PACK // size) for size in sizes.tolist()])
    powers = np.vander(sizes, 3, increasing=True)
    fit = np.linalg.lstsq(powers / seconds[:, None], np.ones(len(sizes)), rcond=None)[0]
    return RowCost(*fit.tolist())


def _equal_rows(length: int) -> Batch:
    """As many rows of one length as a pack takes."""
    count = PACK // length
    starts, rows = np.arange(count + 1) * length, np.arange(count)
    ids = np.arange(PACK, dtype=np.int32) % VOCABULARY
    same = Tokens(ids, starts, starts[:-1] + length * 4 // 10, rows, [])
    return pack(same, rows, np.full(count, 1 / count), False, "cpu")


def weighting(fast: Arm) -> float:
    """CPU seconds of an epoch that only row weights cost: to lay them out, and to multiply by them."""
    lengths = fast.tokens.response_lengths
    weights, losses = np.random.default_rng(0).random(len(lengths)), torch.rand(int(lengths.sum()))

    def work() -> None:
        share = np.repeat(weights / BATCH, lengths)
        (losses * torch.from_numpy(share).float()).sum()

    return interleaved({"weights": work}, 100)["weights"].cpu
