"""Training in forked processes: everything but torchrun, which takes seconds to start."""

import dataclasses
import logging
import resource
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import transformers.models.llama.modeling_llama  # noqa: F401  (before the forks)
from safetensors.numpy import load_file

from cluster_bench.artifacts import Allocation, Machine, Model, Tokens, save
from cluster_bench.training.alive import Alive
from cluster_bench.training.plan import build_plan
from cluster_bench.training.request import Request
from cluster_bench.training.steps import train

Inputs = tuple[Tokens, Model, Allocation]


def request_of(
    method: Any, model: Model, folder: Path, plan_hash: str, machine: Machine, done: int = 0
) -> Request:
    fields, kind = dataclasses.asdict(method), type(method).__name__.removesuffix("Loop").lower()
    return Request(str(folder), str(model.weights), plan_hash, machine, kind, fields, done)


def prepared(folder: Path, inputs: Inputs, method: Any, machine: Machine, done: int = 0) -> Request:
    """What the parent does before it starts the processes."""
    tokens, model, rows = inputs
    plan = build_plan(rows, method.epochs, method.global_batch, method.seed)
    plan.save(folder / "plan.npz")
    (folder / "tokens").mkdir(exist_ok=True)
    save(tokens, folder / "tokens")
    return request_of(method, model, folder, plan.hash, machine, done)


def run(request: Request, limit: int | None = None) -> dict[str, np.ndarray]:
    """The weights that the machine's processes come to; none may write a file above `limit` bytes."""
    processes = request.machine.processes
    mp.start_processes(_process, (processes, request, limit), processes, start_method="fork")
    return load_file(Path(request.folder) / "weights/model.safetensors")


def _process(index: int, processes: int, request: Request, limit: int | None) -> None:
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        logging.basicConfig(filename=f"{request.folder}/log_{index}", force=True)
    torch.set_num_threads(1)
    meet = f"file://{request.folder}/meet_{processes}_{request.done_steps}"
    dist.init_process_group("gloo", init_method=meet, rank=index, world_size=processes)
    train(request, Alive(Path(request.folder), index))
    dist.destroy_process_group()
