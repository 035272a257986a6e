"""What a training leaves to read: a line of JSON per step, what it learned apart from how long it took.

metrics.jsonl             step, loss, lr, grad_norm: the same bytes however often a run is made
timing_<process>.jsonl    seconds and memory: measured, so never twice the same; the parent joins them to
                          timing.jsonl, with tokens per second and the MFU (null where no peak is known)
"""

import contextlib
import json
import resource
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Float64, Int64

from cluster_bench.artifacts import Array


@dataclass
class Metrics:
    """The files of one process, open while it trains; a line is on disk before the next step begins."""

    folder: Path
    process: int
    processes: int
    device: str
    _files: list[IO[str]] = field(default_factory=list[IO[str]])
    _last: float = 0.0
    _ranks: dict[int, float] = field(default_factory=dict[int, float])

    def __enter__(self) -> "Metrics":
        names = [f"timing_{self.process}.jsonl", *(["metrics.jsonl"] if self.process == 0 else [])]
        self._files = [(self.folder / name).open("a") for name in names]
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.close()

    def start(self) -> None:
        """The clock of the first step starts now."""
        self._last = time.perf_counter()

    @contextlib.contextmanager
    def rank(self, rank: int) -> Generator[None]:
        """Measure one rank's forward and backward passes."""
        start = time.perf_counter()
        yield
        self._ranks[rank] = time.perf_counter() - start

    def write(self, learned: dict[str, Any]) -> None:
        """End a step: a line of timing, and (process 0) a line of what was learned."""
        now = time.perf_counter()
        timing = {"step": learned["step"], "seconds": now - self._last, "rank_seconds": self._ranks}
        timing |= {"processes": self.processes, "peak_memory_gib": peak_memory_gib(self.device)}
        for file, line in zip(self._files, (timing, learned), strict=False):
            file.write(json.dumps(line) + "\n")
            file.flush()
        self._last, self._ranks = now, {}


def peak_memory_gib(device: str) -> float:
    """The most memory that this process has held so far: of the GPU, or resident in the host."""
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated() / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


@dataclass(frozen=True)
class Work:
    """What the steps consist of, all ranks: s steps."""

    tokens: Float64[Array, " s"]
    flops: Float64[Array, " s"]
    peak: float | None  # FLOP/s of one process's GPU

    def speed(self, step: int, seconds: float, processes: int) -> dict[str, float | None]:
        """Tokens per second of all processes, and the share of their arithmetic that was used."""
        mfu = self.flops[step] / seconds / processes / self.peak if self.peak else None
        return {"tokens_per_second": self.tokens[step] / seconds, "mfu": mfu}


@dataclass(frozen=True)
class Seconds:
    """What the steps took: s steps, r ranks."""

    steps: Float64[Array, " s"]  # process 0, from the end of one step to the end of the next
    ranks: Float64[Array, "s r"]  # forward and backward
    own: Float64[Array, " s"]  # of these, process 0's
    processes: Int64[Array, " s"]  # that there were

    @property
    def modelled(self) -> float:
        """What as many processes as ranks would take: the slowest rank of each step, and the rest of it."""
        alone = self.processes == self.ranks.shape[1]
        return float(np.where(alone, self.steps, self.ranks.max(1) + self.steps - self.own).sum())


def keep(folder: Path, steps: int) -> None:
    """Drop the lines of steps that a training that goes on after so many steps will take again."""
    for file in [*folder.glob("metrics.jsonl"), *folder.glob("timing_*.jsonl")]:
        lines = file.read_text().split("\n")[:-1]  # what follows the last line end was cut short
        file.write_text("".join(f"{line}\n" for line in lines if json.loads(line)["step"] < steps))


def join(folder: Path, work: Work, ranks: int) -> Seconds:
    """Put the processes' lines together as `timing.jsonl`, and return the seconds in it.

    After an interruption the processes may be more or fewer than before: each step has its own.
    """
    files = sorted(folder.glob("timing_*.jsonl"))
    first = [json.loads(line) for line in (folder / "timing_0.jsonl").read_text().splitlines()]
    rank_seconds = np.full((len(work.tokens), ranks), np.nan)
    memory = np.zeros(len(work.tokens))
    for file in files:
        for line in map(json.loads, file.read_text().splitlines()):
            memory[line["step"]] = max(memory[line["step"]], line["peak_memory_gib"])
            for rank, seconds in line["rank_seconds"].items():
                rank_seconds[line["step"], int(rank)] = seconds
    with (folder / "timing.jsonl").open("w") as out:
        for step, line in enumerate(first):
            of_all = {"rank_seconds": rank_seconds[step].tolist(), "peak_memory_gib": memory[step]}
            speed = work.speed(step, line["seconds"], line["processes"])
            out.write(json.dumps({**line, **of_all, **speed}) + "\n")
    for file in files:
        file.unlink()
    own = np.array([sum(line["rank_seconds"].values()) for line in first])
    processes = np.array([line["processes"] for line in first])
    return Seconds(np.array([line["seconds"] for line in first]), rank_seconds, own, processes)
