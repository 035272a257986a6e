"""The step loop of one process: proves that all follow one plan, then takes its optimizer steps.

A process holds one rank, or several *virtual* ranks that it runs one after the other; the numbers are the
same. Gradients are summed once a step. Beside the request it writes `weights/` (process 0) and what
`metrics.py` names.
"""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from cluster_bench.artifacts import Tokens, load
from cluster_bench.training.batches import pack, pad
from cluster_bench.training.learner import Learner, build_learner
from cluster_bench.training.metrics import Metrics
from cluster_bench.training.packing import micro_batches
from cluster_bench.training.plan import Plan
from cluster_bench.training.request import Request
from cluster_bench.training.schedule import learning_rate


def train(request: Request) -> None:
    """Follow the plan in an initialised process group. Raises RuntimeError when the plans differ."""
    folder, loop = Path(request.folder), request.loop
    plan, tokens = Plan.load(folder / "plan.npz"), load(Tokens, folder / "tokens")
    _agree(plan, request)
    learner = build_learner(request)
    mine = range(dist.get_rank(), plan.ranks, dist.get_world_size())
    with Metrics(folder, dist.get_rank()) as metrics:
        _wait_for_all(request)
        metrics.start()
        for step in range(plan.steps):
            rate = learning_rate(step, plan.steps, loop["lr"], loop["warmup"], loop["schedule"])
            normaliser = _normaliser(plan, tokens, step, loop)
            loss = torch.zeros((), dtype=torch.float64, device=request.machine.device)
            for rank in mine:
                with metrics.rank(rank):
                    loss += _rank_gradient(learner, tokens, plan, (step, rank), normaliser, request)
            loss = learner.sum_over_processes(loss)
            norm = learner.step(rate, loop["clip"])
            metrics.write({"step": step, "loss": loss.item(), "lr": rate, "grad_norm": norm.item()})
        _wait_for_all(request)
    if dist.get_rank() == 0:
        learner.save(folder / "weights", Path(request.weights))
    _wait_for_all(request)


def _rank_gradient(
    learner: Learner,
    tokens: Tokens,
    plan: Plan,
    at: tuple[int, int],
    normaliser: float,
    request: Request,
) -> Float[Tensor, ""]:
    """Accumulate the gradient of one rank's rows of a step; return its share of the loss."""
    loop, device = request.loop, request.machine.device
    rows, weights = plan.batch(*at)
    loss = torch.zeros((), dtype=torch.float64, device=device)
    share, by_token = weights / normaliser, loop["reduction"] == "tokens"
    lay = pack if request.kind == "fast" else pad
    for part in micro_batches(tokens.lengths[rows], loop):
        loss += learner.add_gradient(lay(tokens, rows[part], share[part], by_token, device))
    if device == "cuda":
        torch.cuda.synchronize()  # so that the rank's seconds are its own
    return loss


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
