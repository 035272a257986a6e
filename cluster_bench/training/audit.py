"""What a plan will do, counted before it is followed: exposures, tokens, waiting, padding.

`audit.json` lies beside the checkpoint's weights; the same plan gives the same bytes.
Axes: n usable rows, e exposures, x batches (steps x ranks), v values.
"""

import dataclasses
import json
import logging
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64, Real

from cluster_bench.artifacts import Allocation, Array, Tokens
from cluster_bench.training.plan import Plan

NAME = "audit.json"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Audit:
    """The counts of one plan; a spread is min, mean and max with a histogram, value or bin -> how many."""

    plan: str  # its hash
    ranks: int
    steps: int  # of every rank: a plan of unequal steps cannot be made
    empty_batches: int  # where a rank has no row at a step
    rows_of_steps: dict[str, Any]  # spread of the rows of a global batch
    exposures_of_rows: dict[str, Any]  # spread over the rows of the allocation
    exposures_of_clusters: list[int] | None  # by cluster; None where the allocation does not name them
    exposures_of_ranks: list[int]
    tokens_of_ranks: list[int]  # over all steps
    tokens_of_batches: dict[str, Any]  # spread over (step, rank)
    idle: float  # share of the ranks' time spent waiting for the slowest of each step, by the rows' cost
    cost: str  # what a row costs: its tokens, or the caller's table
    micro_batch: int | None  # rows; None: packed, nothing is padded
    padding: int  # slots that hold no token, over all micro-batches
    padding_share: float  # of all slots
    idle_padded: float  # as `idle`, where a row costs its slots, padding included

    @property
    def lines(self) -> list[str]:
        """A few lines for people."""
        rows, batch = self.exposures_of_rows, self.tokens_of_batches
        shown = sum(self.exposures_of_ranks)
        return [
            f"plan {self.plan}: {self.steps} steps on each of {self.ranks} ranks, {shown} exposures, "
            f"{rows['min']} to {rows['max']} of each row",
            f"tokens of a rank in a step: {batch['min']} to {batch['max']}, mean {batch['mean']:.1f}; "
            f"ranks wait {self.idle:.1%} of the time by {self.cost}",
            f"padding: {self.padding_share:.1%} of all slots"
            + (
                f" in micro-batches of {self.micro_batch} rows; "
                if self.micro_batch
                else ", as rows are packed; "
            )
            + f"with it ranks wait {self.idle_padded:.1%}",
        ]

    def keep(self, folder: Path) -> None:
        """Write it to `audit.json` and log its lines."""
        (folder / NAME).write_text(json.dumps(dataclasses.asdict(self), indent=2))
        for line in self.lines:
            log.info("%s", line)


def audit(
    plan: Plan,
    allocation: Allocation,
    tokens: Tokens,
    micro_batch: int | None,
    cost: Float64[Array, " n"] | None = None,
) -> Audit:
    """Count what a plan of at least one step does.

    `micro_batch` is the rows that are padded to the longest among them, None where rows are packed. `cost`
    is what each usable row takes, in any unit, from a calibrated table; its tokens, if there is none.
    """
    lengths = tokens.lengths
    in_batches = _batch_sums(plan, lengths).astype(np.int64)
    slots = in_batches if micro_batch is None else _slots(plan, lengths, micro_batch)
    padding = int(slots.sum() - in_batches.sum())
    shown = np.bincount(plan.rows, minlength=len(tokens))
    counts = np.diff(plan.offsets)
    by_rank = counts.reshape(-1, plan.ranks).sum(axis=0)
    return Audit(
        plan=plan.hash,
        ranks=plan.ranks,
        steps=plan.steps,
        empty_batches=int((counts == 0).sum()),
        rows_of_steps=_spread(counts.reshape(-1, plan.ranks).sum(axis=1)),
        exposures_of_rows=_spread(shown[np.unique(allocation.rows)]),
        exposures_of_clusters=_of_clusters(plan, allocation, len(tokens)),
        exposures_of_ranks=by_rank.tolist(),
        tokens_of_ranks=in_batches.reshape(-1, plan.ranks).sum(axis=0).tolist(),
        tokens_of_batches=_spread(in_batches),
        idle=idle(plan, lengths if cost is None else cost),
        cost="tokens" if cost is None else "the cost table",
        micro_batch=micro_batch,
        padding=padding,
        padding_share=padding / int(slots.sum()),
        idle_padded=_waiting(slots, plan.ranks),
    )


def idle(plan: Plan, cost: Real[Array, " n"]) -> float:
    """The share of the ranks' time spent waiting, if a batch takes the sum of its rows' cost.

    Every step takes as long as its slowest rank: 1 - (sum of all cost) / (ranks x sum of the steps' largest).
    """
    return _waiting(_batch_sums(plan, cost), plan.ranks)


def _waiting(batches: Real[Array, " x"], ranks: int) -> float:
    steps = batches.reshape(-1, ranks)
    return float(1 - steps.mean(axis=1).sum() / steps.max(axis=1).sum())


def _batch_sums(plan: Plan, values: Real[Array, " n"]) -> Float64[Array, " x"]:
    """Sum a value of rows over each batch, in the order of the plan: step by step, rank by rank."""
    count = np.diff(plan.offsets)
    of_batch = np.repeat(np.arange(len(count)), count)
    return np.bincount(of_batch, weights=values[plan.rows], minlength=len(count))


def _slots(plan: Plan, lengths: Int64[Array, " n"], micro_batch: int) -> Int64[Array, " x"]:
    """Slots of each batch where every `micro_batch` rows in turn are padded to the longest of them."""
    count = np.diff(plan.offsets)
    place = np.arange(len(plan.rows)) - np.repeat(plan.offsets[:-1], count)  # in its batch
    starts = np.flatnonzero(place % micro_batch == 0)
    longest = np.maximum.reduceat(lengths[plan.rows], starts)
    slots = longest * np.diff(np.append(starts, len(plan.rows)))
    of_batch = np.repeat(np.arange(len(count)), count)[starts]
    return np.bincount(of_batch, weights=slots, minlength=len(count)).astype(np.int64)


def _of_clusters(plan: Plan, allocation: Allocation, n: int) -> list[int] | None:
    if allocation.cluster is None:
        return None
    cluster = np.full(n, -1, np.int64)
    cluster[allocation.rows] = allocation.cluster
    return np.bincount(cluster[plan.rows]).tolist()


def _spread(values: Int64[Array, " v"]) -> dict[str, Any]:
    """Min, mean, max and a histogram: by value where there are few, else in ten bins of equal width."""
    found, count = np.unique(values, return_counts=True)
    names = [str(value) for value in found.tolist()]
    if len(found) > 12:
        count, edges = np.histogram(values, bins=10)
        names = [f"{low:.1f}-{high:.1f}" for low, high in pairwise(edges.tolist())]
    histogram = dict(zip(names, count.tolist(), strict=True))
    return {"min": int(found[0]), "mean": float(values.mean()), "max": int(found[-1]), "histogram": histogram}
