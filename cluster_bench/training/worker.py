"""One torchrun process: reads the request and the plan, proves that all agree, trains its ranks.

    torchrun ... -m cluster_bench.training.worker <request.json>

A process holds one rank, or several *virtual* ranks that it runs one after the other; the numbers are the
same. Gradients are summed with one all-reduce a step. It writes, beside the request: `weights/` and
`metrics.jsonl` (process 0), `seconds_<process>.npy` (forward and backward, [step, rank]), and, when it
fails, `process_<process>.error`.
"""

import contextlib
import json
import os
import shutil
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn

from cluster_bench.artifacts import Tokens, load
from cluster_bench.machine import die_with_parent
from cluster_bench.training.loss import batch_loss, pad
from cluster_bench.training.plan import Plan
from cluster_bench.training.schedule import learning_rate
from cluster_bench.training.torchrun import PARENT


@dataclass(frozen=True)
class Request:
    """All that the processes are told, as JSON."""

    folder: str
    weights: str  # the base model's folder
    plan_hash: str
    device: str
    threads: int
    loop: dict[str, Any]  # the fields of the training method

    @classmethod
    def read(cls, path: Path) -> "Request":
        """Read a request as the parent wrote it."""
        return cls(**json.loads(path.read_text()))


def main(path: Path) -> None:
    """Train as one process of a torchrun job."""
    request = Request.read(path)
    process = int(os.environ["RANK"])
    folder = Path(request.folder)
    (folder / f"process_{process}.pid").write_text(str(os.getpid()))
    torch.set_num_threads(request.threads)
    if request.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    try:
        dist.init_process_group("nccl" if request.device == "cuda" else "gloo")
        train(request)
        dist.destroy_process_group()
    except BaseException:
        draft = folder / f".process_{process}.error"
        draft.write_text(traceback.format_exc())
        draft.rename(folder / f"process_{process}.error")
        raise


def train(request: Request) -> None:
    """Follow the plan in an initialised process group. Raises RuntimeError when the plans differ."""
    folder, loop = Path(request.folder), request.loop
    process, processes = dist.get_rank(), dist.get_world_size()
    plan, tokens = Plan.load(folder / "plan.npz"), load(Tokens, folder / "tokens")
    _agree(plan, request)
    model = _load_model(request, int(tokens.ids.max()))
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = _optimizer(parameters, loop)
    mine = range(process, plan.ranks, processes)
    seconds = np.zeros((plan.steps, plan.ranks))
    rest = np.zeros(plan.steps)
    with (folder / "metrics.jsonl").open("w") if process == 0 else contextlib.nullcontext() as metrics:
        _wait_for_all(request)
        begin = time.perf_counter()
        for step in range(plan.steps):
            rate = learning_rate(step, plan.steps, loop["lr"], loop["warmup"], loop["schedule"])
            normaliser = _normaliser(plan, tokens, step, loop)
            loss = torch.zeros((), dtype=torch.float64, device=request.device)
            for rank in mine:
                start = time.perf_counter()
                loss += _rank_gradient(model, tokens, plan, (step, rank), normaliser, request)
                seconds[step, rank] = time.perf_counter() - start
            start = time.perf_counter()
            loss = sum_over_processes(parameters, loss)
            norm = _step(parameters, optimizer, rate, loop["clip"])
            rest[step] = time.perf_counter() - start
            if metrics:
                now = {"step": step, "loss": loss.item(), "lr": rate, "grad_norm": norm.item()}
                metrics.write(json.dumps({**now, "seconds": time.perf_counter() - begin}) + "\n")
                metrics.flush()
        _wait_for_all(request)
        total = time.perf_counter() - begin
    np.save(folder / f"seconds_{process}.npy", seconds)
    if process == 0:
        np.save(folder / "rest.npy", rest)
        (folder / "total.json").write_text(json.dumps(total))
        _save(model, request)
    _wait_for_all(request)


def sum_over_processes(parameters: list[nn.Parameter], loss: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """Sum every gradient, and the loss beside them, over the processes in one all-reduce."""
    if dist.get_world_size() == 1:
        return loss
    grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
    flat = torch.cat([g.flatten() for g in grads] + [loss.to(grads[0].dtype).reshape(1)])
    dist.all_reduce(flat)
    offset = 0
    for parameter, grad in zip(parameters, grads, strict=True):
        parameter.grad = flat[offset : offset + grad.numel()].view_as(grad)
        offset += grad.numel()
    return flat[-1]


def _rank_gradient(
    model: nn.Module,
    tokens: Tokens,
    plan: Plan,
    at: tuple[int, int],
    normaliser: float,
    request: Request,
) -> Float[Tensor, ""]:
    """Accumulate the gradient of one rank's rows of a step; return its share of the loss."""
    loop = request.loop
    rows, weights = plan.batch(*at)
    low = torch.autocast(request.device, torch.bfloat16, enabled=loop["dtype"] == "bfloat16")
    loss = torch.zeros((), dtype=torch.float64, device=request.device)
    for start in range(0, len(rows), loop["micro_batch"]):
        part = slice(start, start + loop["micro_batch"])
        batch = pad(
            tokens, rows[part], weights[part] / normaliser, loop["reduction"] == "tokens", request.device
        )
        with low:
            share = batch_loss(model, batch)
        share.backward()  # type: ignore[no-untyped-call]
        loss += share.detach()
    if request.device == "cuda":
        torch.cuda.synchronize()  # so that the rank's seconds are its own
    return loss


def _normaliser(plan: Plan, tokens: Tokens, step: int, loop: dict[str, Any]) -> float:
    """What the weighted sum over the global batch is divided by: rows, or weighted response tokens."""
    if loop["reduction"] == "rows":
        return float(len(plan.step_rows(step)))
    batches = [plan.batch(step, rank) for rank in range(plan.ranks)]
    return float(sum((weights * tokens.response_lengths[rows]).sum() for rows, weights in batches))


def _step(
    parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer, rate: float, clip: float | None
) -> Float[Tensor, ""]:
    norm = nn.utils.clip_grad_norm_(parameters, clip if clip is not None else float("inf"))
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm


def _agree(plan: Plan, request: Request) -> None:
    """Compare the plan's hash on all processes and with the parent's."""
    hashes: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(hashes, plan.hash)
    for process, found in enumerate(hashes):
        if found != request.plan_hash:
            raise RuntimeError(f"process {process} reads plan {found}, the parent wrote {request.plan_hash}")


def _load_model(request: Request, largest_id: int) -> nn.Module:
    from transformers import AutoModelForCausalLM

    kind = torch.float64 if request.loop["dtype"] == "float64" else torch.float32
    model: Any = AutoModelForCausalLM.from_pretrained(request.weights, dtype=kind)
    if largest_id >= model.config.vocab_size:
        raise ValueError(
            f"model: token {largest_id} is outside its vocabulary of {model.config.vocab_size}; "
            "model and tokenizer do not belong together"
        )
    return model.to(request.device).train()


def _optimizer(parameters: list[nn.Parameter], loop: dict[str, Any]) -> torch.optim.Optimizer:
    """AdamW, or Adafactor as the reference sets it: no relative step, no parameter scaling."""
    if loop["optimizer"] == "adamw":
        return torch.optim.AdamW(parameters, loop["lr"], weight_decay=loop["weight_decay"], fused=True)
    from transformers.optimization import Adafactor

    return Adafactor(
        parameters,
        lr=loop["lr"],
        weight_decay=loop["weight_decay"],
        scale_parameter=False,
        relative_step=False,
        warmup_init=False,
    )


def _wait_for_all(request: Request) -> None:
    if request.device == "cuda":
        torch.cuda.synchronize()
    dist.barrier()


def _save(model: Any, request: Request) -> None:
    """Write float32 weights and the base model's tokenizer in the Hugging Face layout."""
    target = Path(request.folder) / "weights"
    model.float().save_pretrained(target)
    for path in Path(request.weights).iterdir():
        if not (target / path.name).exists() and path.suffix in (".json", ".jinja", ".model", ".txt"):
            shutil.copy2(path, target / path.name)


if __name__ == "__main__":
    die_with_parent(int(os.environ[PARENT]), signal.SIGKILL)
    main(Path(sys.argv[1]))
