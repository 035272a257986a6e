"""Measure targets 7 to 11 and 14, print them and keep them in RESULTS; exits 0 whatever the verdicts are."""

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch

from cluster_bench.artifacts import Machine, Model, Tokens
from cluster_bench.bench import safety, saving, scoring
from cluster_bench.bench.balance import OURS, idle_by_allocation
from cluster_bench.bench.clock import interleaved
from cluster_bench.bench.inputs import base, rows
from cluster_bench.bench.lines import GATE, Line
from cluster_bench.bench.loops import Arm, arm, floor, row_cost, weighting
from cluster_bench.machine import facts

RESULTS = Path("results/bench.txt")
ROWS, ROUNDS = 384, 10
STEADY = ":".join(  # glibc: memory in huge pages, never given back; else two equal arms differ by up to 10%
    f"glibc.malloc.{name}" for name in ("hugetlb=1", "trim_threshold=4000000000", "mmap_threshold=4000000000")
)
PADDED, TOKENS = 16, 2048  # rows, and tokens, of a micro-batch


def main() -> None:
    """Run everything in one process on one thread, in steady memory."""
    if os.environ.get("GLIBC_TUNABLES") != STEADY:
        again = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, again, {**os.environ, "GLIBC_TUNABLES": STEADY})
    torch.set_num_threads(1)
    said: list[str] = []
    for line in report():
        print(line, flush=True)
        said.append(line.rstrip())
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("\n".join(said) + "\n")


def report() -> Iterator[str]:
    """The lines, as they are measured: the machine, the arms' seconds, what they are to each other."""
    about = facts(Machine())
    yield ", ".join(f"{name} {about[name]}" for name in ("cpu", "python", "torch", "transformers"))
    begin, load = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        yield from _measured(base(Path(folder)), rows(ROWS, seed=7))
    seconds = time.monotonic() - begin
    yield f"load average {load:.1f} before, {os.getloadavg()[0]:.1f} after; {seconds:.0f} s"


def _measured(model: Model, tokens: Tokens) -> Iterator[str]:
    chosen, every = saving.choose(tokens, model), np.random.default_rng(0).permutation(len(tokens))
    arms = {
        "padded": arm(model, tokens, every, micro_batch=PADDED),
        "one row": arm(model, tokens, every, micro_batch=1),
        "fast": arm(model, tokens, every, micro_tokens=TOKENS),
        "padded again": arm(model, tokens, every, micro_batch=PADDED),
        "fast, kept": arm(model, tokens, chosen.rows, micro_tokens=TOKENS),
        "fast, random": arm(model, tokens, chosen.random, micro_tokens=TOKENS),
    }
    losses = {name: np.array(arms[name]()) for name in ("padded", "one row", "fast")}  # and warm up
    times = interleaved({**arms, "features": chosen.features}, ROUNDS)
    for name, reading in times.items():
        yield f"  {name:<14} {reading.cpu:7.3f} s CPU {reading.wall:7.3f} s wall"
    least = floor(model, int(tokens.lengths.sum()))
    yield f"  {'floor':<14} {least:7.3f} s CPU, the matrix products alone"
    off = abs(times["padded again"].cpu / times["padded"].cpu - 1)
    yield f"  the baseline against itself: off by {off:.1%}"
    cost_of = row_cost(arms["fast"])
    waits = {ranks: idle_by_allocation(ranks, cost_of) for ranks in (4, 8)}
    padded, one, fast = (times[name].cpu for name in losses)
    gap = max(float(np.abs(losses[name] / losses["padded"] - 1).max()) for name in losses)
    lines = [
        *_padding(arms),
        *_waiting(waits),
        Line("8", "row weights, of an epoch", weighting(arms["fast"]) / fast, "<= 0.01", timed=True),
        Line("9", "tokens/s against padded random batches", padded / fast, ">= 2.5", "x", timed=True),
        Line("9", "tokens/s against micro-batch 1", one / fast, ">= 1.25", "x", timed=True),
        Line("9", "largest relative difference of a step's loss", gap, "<= 0.0001", ""),
        *saving.lines(times, chosen, tokens, waits[4]),
        *safety.lines(arms["padded"]),
        *scoring.lines(model, ROUNDS // 2),
    ]
    yield from (line.text(off <= GATE) for line in lines)


def _padding(arms: Mapping[str, Arm]) -> list[Line]:
    return [
        Line("7", "padding slots in the fast loop", arms["fast"].padding, "<= 0.02"),
        Line("", f"  in micro-batches of {PADDED} random rows", arms["padded"].padding),
    ]


def _waiting(waits: Mapping[int, Mapping[str, float]]) -> list[Line]:
    named = [(ranks, name, wait) for ranks, found in waits.items() for name, wait in found.items()]
    return [
        Line("8", f"{ranks} ranks wait: {name}", wait, "<= 0.03" if name == OURS else "", note="modelled")
        for ranks, name, wait in named
    ]


if __name__ == "__main__":
    main()
