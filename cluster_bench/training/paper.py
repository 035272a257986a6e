"""Fine-tuning as the paper publishes it: padded micro-batches, accumulation, one all-reduce a step.

This is the parent's side: it builds the plan, writes one request, starts torchrun and reads what came out.
"""

import dataclasses
import shutil
from pathlib import Path
from typing import Any, Literal

from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Allocation, Checkpoint, Model, Tokens, Workspace, save
from cluster_bench.progress import progress
from cluster_bench.training.alive import end_silent
from cluster_bench.training.audit import audit
from cluster_bench.training.flops import peak_flops, per_step, row_flops
from cluster_bench.training.metrics import Work, join, keep
from cluster_bench.training.plan import Plan, build_plan
from cluster_bench.training.preflight import check
from cluster_bench.training.request import Request
from cluster_bench.training.snapshots import SNAPSHOTS, latest
from cluster_bench.training.torchrun import end_leftovers, torchrun


@dataclass(frozen=True, config=STRICT)
class PaperLoop:
    """Full-parameter tuning over an explicit plan; any micro-batch gives the formula's gradient."""

    ranks: int
    epochs: int  # 0 leaves the base model as it is
    global_batch: int  # rows per optimizer step, all ranks
    micro_batch: int  # rows per forward pass; a rank with fewer rows a step takes them in one
    reduction: Literal["rows", "tokens"]  # mean over rows of each row's mean, or over response tokens
    optimizer: Literal["adamw", "adafactor"]
    lr: float
    schedule: Literal["linear", "cosine"]
    warmup: float  # steps; below 1 a share of all steps
    weight_decay: float
    clip: float | None  # largest gradient norm
    dtype: Literal["float32", "bfloat16", "float64"]  # bfloat16: autocast over float32 weights
    seed: int

    def __post_init__(self) -> None:
        check_numbers(self, "micro_batch")
        if self.global_batch % (self.ranks * min(self.micro_batch, self.global_batch // self.ranks or 1)):
            raise ValueError(
                f"global_batch {self.global_batch} does not divide over "
                f"ranks {self.ranks} x micro_batch {self.micro_batch}"
            )

    def __call__(self, tokens: Tokens, model: Model, allocation: Allocation, work: Workspace) -> Checkpoint:
        """Train from the base model. Raises RuntimeError that names the rank when one fails."""
        return fine_tune(self, "paper", tokens, model, allocation, work)


def check_numbers(loop: Any, micro: str) -> None:
    """Raise ValueError for a field of a loop that cannot be; `micro` is its size of a micro-batch."""
    for name in ("ranks", "global_batch", micro, "lr"):
        if not getattr(loop, name) > 0:
            raise ValueError(f"{name} must be above 0, got {getattr(loop, name)}")
    if loop.epochs < 0 or loop.warmup < 0:
        raise ValueError(f"epochs and warmup must not be below 0, got {loop.epochs} and {loop.warmup}")


def fine_tune(
    loop: Any, kind: str, tokens: Tokens, model: Model, allocation: Allocation, work: Workspace
) -> Checkpoint:
    """Train by a method of the registry, `loop`, whose name there is `kind`: the same for each of them."""
    if allocation.ranks != loop.ranks:
        raise ValueError(f"training.ranks is {loop.ranks}, the allocation's {allocation.ranks}")
    plan = build_plan(allocation, loop.epochs, loop.global_batch, loop.seed)
    if plan.steps:
        check(loop, tokens, model, plan.rows, work.machine)
    done = _clear(work.folder, plan.hash)
    if not plan.steps:
        shutil.copytree(model.weights, work.folder / "weights")
        return Checkpoint(work.folder / "weights", 0, 0, 0.0, 0.0, [0.0] * loop.ranks, 0)
    (work.folder / "tokens").mkdir()
    save(tokens, work.folder / "tokens")
    plan.save(work.folder / "plan.npz")
    audit(plan, allocation, tokens, getattr(loop, "micro_batch", None)).keep(work.folder)
    fields = dataclasses.asdict(loop)
    request = Request(str(work.folder), str(model.weights), plan.hash, work.machine, kind, fields, done)
    _run(request, plan.steps)
    lengths = tokens.lengths[plan.rows]
    flops = row_flops(model, lengths, adapters=bool(getattr(loop, "lora", None)))
    bounds = plan.offsets[:: plan.ranks]
    peak = peak_flops(work.machine.device)
    return _collect(plan, work, Work(per_step(1.0 * lengths, bounds), per_step(flops, bounds), peak))


def _run(request: Request, steps: int) -> None:
    """Start torchrun on the request and show how far it is."""
    folder, machine = Path(request.folder), request.machine
    request.write(folder / "request.json")
    with progress("training", steps, "steps") as advance:
        metrics, read = folder / "metrics.jsonl", 0

        def each_poll() -> None:
            nonlocal read
            end_silent(folder, machine.processes, machine.silent_s)
            if metrics.exists():
                with metrics.open("rb") as file:
                    file.seek(read)
                    fresh = file.read()
                read += len(fresh)
                advance(fresh.count(b"\n"))

        torchrun(
            "cluster_bench.training.worker",
            folder / "request.json",
            machine.processes,
            machine.threads,
            each_poll,
            machine.meeting,
        )


def _clear(folder: Path, plan_hash: str) -> int:
    """Leave of a killed try nothing but its snapshots and the lines up to the newest; return its steps."""
    end_leftovers(folder / "request.json")
    done = latest(folder / SNAPSHOTS, plan_hash)
    keep(folder, done)
    for path in folder.iterdir():
        if path.is_dir() and (path.name != SNAPSHOTS or not done):
            shutil.rmtree(path)
        elif path.is_file() and (path.suffix != ".jsonl" or not done):
            path.unlink()
    return done


def _collect(plan: Plan, work: Workspace, done: Work) -> Checkpoint:
    """Read the seconds of every process, and leave what belongs to the artefact."""
    folder, processes = work.folder, work.machine.processes
    seconds = join(folder, done, plan.ranks)
    for name in ("tokens", SNAPSHOTS):
        shutil.rmtree(folder / name, ignore_errors=True)
    for path in [*folder.glob("process_*.alive"), *folder.glob("process_*.stack")]:
        path.unlink()
    return Checkpoint(
        folder / "weights",
        plan.steps,
        int(done.tokens.sum()),
        float(seconds.steps.sum()),
        seconds.modelled,
        seconds.ranks.sum(0).tolist(),
        processes,
    )
