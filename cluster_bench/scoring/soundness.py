"""Whether the items of code benchmarks can tell right from wrong: a stage made before training.

An item whose own reference solution fails cannot be passed by anybody; one whose tests a function passes that
does nothing is passed by everybody. Published copies have both kinds, and a score cannot show it.
"""

import logging
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Benchmarks, Soundness, Workspace
from cluster_bench.progress import progress
from cluster_bench.scoring.benchmarks import BENCHMARKS, Form, Item
from cluster_bench.scoring.execution import Sandbox
from cluster_bench.scoring.items import items
from cluster_bench.scoring.judging import workers_on
from cluster_bench.scoring.programs import Program, Result, Verdict

log = logging.getLogger(__name__)


class _Trial(NamedTuple):
    """A program whose verdict is known beforehand where the item is sound."""

    benchmark: str
    item: int
    program: Program
    is_reference: bool  # else the one that does nothing


@dataclass(frozen=True, config=STRICT)
class ReferenceSolutions:
    """Runs each item's reference solution and a program that does nothing, within the limits of scoring."""

    timeout_s: float  # per program
    memory_mb: int  # per program

    def __call__(self, benchmarks: Benchmarks, work: Workspace) -> Soundness:
        start = time.perf_counter()
        asked = {
            name: items(name, benchmarks.folder / f"{name}.jsonl", Form(), None)
            for name in benchmarks.items
            if BENCHMARKS[name].kind == "code"
        }
        trials = [
            one for name, of in asked.items() for i, item in enumerate(of) for one in _trials(name, i, item)
        ]
        results = self._run(trials, benchmarks, work)
        failing: dict[str, dict[str, str]] = {}
        vacuous: dict[str, list[int]] = {}
        for trial, result in zip(trials, results, strict=True):
            passed = result.verdict is Verdict.PASSED
            if trial.is_reference and not passed:
                said = ": ".join(part for part in (str(result.verdict), result.detail) if part)
                failing.setdefault(trial.benchmark, {})[str(trial.item)] = said
            elif passed and not trial.is_reference:
                vacuous.setdefault(trial.benchmark, []).append(trial.item)
        unknown = {name: sum(not item.reference for item in of) for name, of in asked.items()}
        found = Soundness(failing, vacuous, unknown, time.perf_counter() - start)
        for line in told(found):
            log.warning("benchmarks: %s", line)
        return found

    def _run(self, trials: list[_Trial], benchmarks: Benchmarks, work: Workspace) -> list[Result]:
        if not trials:
            return []
        hidden, unsafe = (benchmarks.folder,), work.machine.unsafe
        box = Sandbox(workers_on(work.machine), self.timeout_s, self.memory_mb, hidden, unsafe)
        programs = [trial.program for trial in trials]
        with box as sandbox, progress("references", len(programs), "programs") as advance:
            return sandbox.run(programs, advance)


def _trials(benchmark: str, number: int, item: Item) -> list[_Trial]:
    idle = item.preamble + "".join(f"def {name}(*args, **kwargs):\n    pass\n" for name in item.defines)
    texts = {True: item.reference, False: idle}
    return [
        _Trial(benchmark, number, Program(text, item.tests, item.defines), is_reference)
        for is_reference, text in texts.items()
        if text
    ]


def told(found: Soundness) -> list[str]:
    """A line for each benchmark and kind of item that cannot tell right from wrong; items count from 0."""
    kinds: dict[str, Mapping[str, Any]] = {
        "that their own reference solution fails": found.failing,
        "that a function passes which does nothing": found.vacuous,
    }
    return [
        f"{name}: {len(of)} items {what}: {', '.join(map(str, of))}"
        for what, by_name in kinds.items()
        for name, of in by_name.items()
    ]
