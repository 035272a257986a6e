"""The step loop of one process: proves that all follow one plan, then takes its optimizer steps.

A process holds one rank, or several *virtual* ranks that it runs one after the other; the numbers are the
same. Gradients are summed once a step, and with them whether a snapshot is due or the job is to end. Beside
the request it writes `weights/` (process 0) and what `metrics.py` and `snapshots.py` name.
"""

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from cluster_bench.artifacts import Array, Tokens, load
from cluster_bench.training.alive import WAITS, WRITES, Alive
from cluster_bench.training.batches import Batch, pack, pad
from cluster_bench.training.learner import Learner, build_learner
from cluster_bench.training.metrics import Metrics
from cluster_bench.training.packing import micro_batches
from cluster_bench.training.plan import Plan
from cluster_bench.training.request import Request
from cluster_bench.training.schedule import learning_rate
from cluster_bench.training.snapshots import SNAPSHOTS, Snapshots


@dataclass(frozen=True)
class Training:
    """What one process trains with."""

    request: Request
    plan: Plan
    tokens: Tokens
    learner: Learner
    alive: Alive

    def step_gradient(self, step: int, ranks: range, metrics: Metrics) -> Float[Tensor, ""]:
        """Accumulate the gradient of this process's ranks; return their share of the step's loss."""
        normaliser = _normaliser(self.plan, self.tokens, step, self.request.loop)
        loss = torch.zeros((), dtype=torch.float64, device=self.request.machine.device)
        for rank in ranks:
            with metrics.rank(rank):
                loss += self._rank_gradient(step, rank, normaliser)
        if self.learner.sharded:
            self._keep_up(step)
        return loss

    def _keep_up(self, step: int) -> None:
        """Passes that count nothing, so that all processes gather the layers equally often."""
        processes, loop = dist.get_world_size(), self.request.loop
        counts = [0] * processes
        for rank in range(self.plan.ranks):
            rows, _ = self.plan.batch(step, rank)
            counts[rank % processes] += len(micro_batches(self.tokens.lengths[rows], loop))
        nothing = self._lay(np.array([0]), np.zeros(1))
        for _ in range(max(counts) - counts[dist.get_rank()]):
            self.learner.add_gradient(nothing)

    def _rank_gradient(self, step: int, rank: int, normaliser: float) -> Float[Tensor, ""]:
        loop, device = self.request.loop, self.request.machine.device
        rows, weights = self.plan.batch(step, rank)
        shares = weights / normaliser
        loss = torch.zeros((), dtype=torch.float64, device=device)
        parts = micro_batches(self.tokens.lengths[rows], loop)
        for count, part in enumerate(parts):
            self.alive.does(f"step {step}, rank {rank}, micro-batch {count} of {len(parts)}")
            loss += self.learner.add_gradient(self._lay(rows[part], shares[part]))
        if device == "cuda":
            torch.cuda.synchronize()  # so that the rank's seconds are its own
        return loss

    def _lay(self, rows: Int64[Array, " b"], shares: Float64[Array, " b"]) -> Batch:
        """A micro-batch as this loop reads it: packed or padded."""
        lay = pack if self.request.kind == "fast" else pad
        by_token = self.request.loop["reduction"] == "tokens"
        return lay(self.tokens, rows, shares, by_token, self.request.machine.device)


def train(request: Request, alive: Alive) -> None:
    """Follow the plan in an initialised process group. Raises RuntimeError when the plans differ."""
    folder = Path(request.folder)
    plan, tokens = Plan.load(folder / "plan.npz"), load(Tokens, folder / "tokens")
    _agree(plan, request)
    alive.does("loads the model")
    learner = build_learner(request)
    snapshots = Snapshots(folder / SNAPSHOTS, plan.hash, request.machine.snapshot_minutes)
    if request.done_steps:
        snapshots.restore(learner, request.done_steps)
    _take_steps(Training(request, plan, tokens, learner, alive), snapshots)
    alive.does("saves the weights")
    learner.save(folder / "weights", Path(request.weights))
    alive.does(WAITS)
    _wait_for_all(request)


def _take_steps(training: Training, snapshots: Snapshots) -> None:
    """Take the steps that are left, with a snapshot when one is due or when this job is told to end."""
    request, learner, alive, steps = training.request, training.learner, training.alive, training.plan.steps
    loop = request.loop
    mine = range(dist.get_rank(), training.plan.ranks, dist.get_world_size())
    who = dist.get_rank(), dist.get_world_size(), request.machine.device
    with Metrics(Path(request.folder), *who) as metrics:
        alive.does(WAITS)
        _wait_for_all(request)
        metrics.start()
        for step in range(request.done_steps, steps):
            rate = learning_rate(step, steps, loop["lr"], loop["warmup"], loop["schedule"])
            loss = training.step_gradient(step, mine, metrics)
            signs = torch.tensor([snapshots.due, alive.told_to_end], dtype=loss.dtype, device=loss.device)
            alive.does(f"{WAITS} at step {step}")
            beside = learner.sum_over_processes(torch.cat([loss[None], signs]))
            norm = learner.step(rate, loop["clip"])
            total, due, ended = beside.tolist()
            metrics.write({"step": step, "loss": total, "lr": rate, "grad_norm": norm.item()})
            if step + 1 == steps or not (due or ended):
                continue
            snapshots.take(learner, step + 1)
            if ended:
                alive.does(WRITES)
                snapshots.close()
                raise SystemExit(128 + signal.SIGTERM)
        alive.does(WRITES)
        snapshots.close()
        alive.does(WAITS)
        _wait_for_all(request)


def _normaliser(plan: Plan, tokens: Tokens, step: int, loop: dict[str, Any]) -> float:
    """What the weighted sum over the global batch is divided by: rows, or weighted response tokens."""
    if loop["reduction"] == "rows":
        return float(len(plan.step_rows(step)))
    batches = [plan.batch(step, rank) for rank in range(plan.ranks)]
    return float(sum((weights * tokens.response_lengths[rows]).sum() for rows, weights in batches))


def _agree(plan: Plan, request: Request) -> None:
    """Compare the plan's hash on all processes and with the parent's."""
    hashes: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(hashes, plan.hash)
    for process, found in enumerate(hashes):
        if found != request.plan_hash:
            raise RuntimeError(f"process {process} reads plan {found}, the parent wrote {request.plan_hash}")


def _wait_for_all(request: Request) -> None:
    if request.machine.device == "cuda":
        torch.cuda.synchronize()
    dist.barrier()
