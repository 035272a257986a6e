"""What a training leaves to read: a line of JSON per step, what it learned apart from how long it took.

metrics.jsonl             step, loss, lr, grad_norm: the same bytes however often a run is made
timing_<process>.jsonl    seconds: measured, so never twice the same; the parent joins them at the end
"""

import contextlib
import json
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Float64

from cluster_bench.artifacts import Array


@dataclass
class Metrics:
    """The files of one process, open while it trains; a line is on disk before the next step begins."""

    folder: Path
    process: int
    _files: list[IO[str]] = field(default_factory=list[IO[str]])
    _last: float = 0.0
    _ranks: dict[int, float] = field(default_factory=dict[int, float])

    def __enter__(self) -> "Metrics":
        names = [f"timing_{self.process}.jsonl", *(["metrics.jsonl"] if self.process == 0 else [])]
        self._files = [(self.folder / name).open("w") for name in names]
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
        for file, line in zip(self._files, (timing, learned), strict=False):
            file.write(json.dumps(line) + "\n")
            file.flush()
        self._last, self._ranks = now, {}


@dataclass(frozen=True)
class Seconds:
    """What the steps took: s steps, r ranks."""

    steps: Float64[Array, " s"]  # process 0, from the end of one step to the end of the next
    ranks: Float64[Array, "s r"]  # forward and backward
    processes: int

    @property
    def modelled(self) -> float:
        """What as many processes as ranks would take: the slowest rank of each step, and the rest of it."""
        if self.processes == self.ranks.shape[1]:
            return float(self.steps.sum())
        own = self.ranks[:, :: self.processes].sum(1)
        return float((self.ranks.max(1) + self.steps - own).sum())


def join(folder: Path, steps: int, ranks: int, processes: int) -> Seconds:
    """Put the processes' lines together as `timing.jsonl`, and return the seconds in it."""
    files = [folder / f"timing_{process}.jsonl" for process in range(processes)]
    lines = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    rank_seconds = np.zeros((steps, ranks))
    with (folder / "timing.jsonl").open("w") as out:
        for step, parts in enumerate(zip(*lines, strict=True)):
            found = {int(rank): s for part in parts for rank, s in part["rank_seconds"].items()}
            rank_seconds[step] = [found[rank] for rank in range(ranks)]
            out.write(json.dumps({**parts[0], "rank_seconds": rank_seconds[step].tolist()}) + "\n")
    for file in files:
        file.unlink()
    return Seconds(np.array([line["seconds"] for line in lines[0]]), rank_seconds, processes)
