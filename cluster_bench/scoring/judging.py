"""Judging generated programs while the model goes on generating."""

import os
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from cluster_bench.artifacts import Machine
from cluster_bench.progress import progress
from cluster_bench.scoring.benchmarks import BENCHMARKS, Item
from cluster_bench.scoring.execution import Sandbox
from cluster_bench.scoring.extraction import program
from cluster_bench.scoring.outcomes import Record
from cluster_bench.scoring.programs import Program, Result


def workers_on(machine: Machine) -> int:
    """How many programs run at once: one for each thread that the model has."""
    return max(1, min(machine.processes * machine.threads, os.cpu_count() or 1))


class Judge:
    """The sandbox, where programs run as soon as they are generated, each text once."""

    def __init__(
        self,
        asked: Mapping[str, list[Item]],
        timeout_s: float,
        memory_mb: int,
        machine: Machine,
        hidden: tuple[Path, ...],
    ) -> None:
        self.asked, self.missing = asked, "not used"
        self._code = {
            (name, number): item
            for name, of in asked.items()
            if BENCHMARKS[name].kind == "code"
            for number, item in enumerate(of)
        }
        self._places: dict[str, list[tuple[str, int]]] = {}
        for place, item in self._code.items():
            self._places.setdefault(item.prompt, []).append(place)
        self._running: dict[Program, Future[Result]] = {}
        self._settled: dict[Program, Result] = {}  # for all ways of asking: timeouts are not tried ever anew
        self._sandbox = Sandbox(workers_on(machine), timeout_s, memory_mb, hidden, unsafe=machine.unsafe)

    def __enter__(self) -> "Judge":
        if self._code:
            self._sandbox.__enter__()
            missing = ", ".join(self._sandbox.missing)
            self.missing = f"without {missing}" if missing else "complete"
        return self

    def __exit__(self, *raised: Any) -> None:
        if self._code:
            self._sandbox.__exit__(*raised)

    def look_at(self, prompt: str, text: str, special: list[str]) -> None:
        """Start what was said to a prompt, for every item that asks so."""
        for place in self._places.get(prompt, ()):
            extracted = program(text, self._code[place], special)
            if extracted is not None:
                self._start(self._program(place, extracted))

    def judge(self, records: Mapping[str, list[Record]]) -> None:
        """Put the verdicts into the records, when all programs have ended."""
        found = [
            (one, self._program((name, one["item"]), one["extracted"]))
            for name, of in records.items()
            for one in of
            if one.get("extracted") is not None
        ]
        if not found:
            return
        for _, one in found:
            self._start(one)
        programs = list(dict.fromkeys(one for _, one in found if one not in self._settled))
        with progress("running", len(programs), "programs") as advance:
            results = self._sandbox.settle(programs, [self._running[one] for one in programs], advance)
        self._settled |= zip(programs, results, strict=True)
        for one, text in found:
            result = self._settled[text]
            one["verdict"], one["detail"] = str(result.verdict), result.detail

    def _start(self, one: Program) -> None:
        if one not in self._running:
            self._running[one] = self._sandbox.submit(one)

    def _program(self, place: tuple[str, int], text: str) -> Program:
        item = self._code[place]
        return Program(text, item.tests, item.defines)
