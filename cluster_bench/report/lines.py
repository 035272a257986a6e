"""The lines of the table: the runs that differ only by seed, and which are held against which."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cluster_bench.record import Record

FIRST = ("base", "full", "random")  # the references come before all others, in this order
NAMED = ("study", "method", "model", "dataset", "seed")  # overrides that have a column of their own
MACHINE = ("cpu", "cores", "torch")  # what a figure never mixes
SPEED = (*MACHINE, "device", "processes", "threads", "nodes")  # what must be equal to compare seconds


@dataclass(frozen=True)
class Line:
    """The runs that differ only by seed, in the order of their seeds."""

    dataset: str
    model: str
    method: str
    cell: tuple[tuple[str, str], ...]  # the overrides that tell it from the report's other lines
    records: tuple[Record, ...]

    @property
    def label(self) -> str:
        """The method, and the cell of the sweep by the last part of its names where that is enough."""
        last = [name.rpartition(".")[2] for name, _ in self.cell]
        names = [
            short if last.count(short) == 1 else name
            for short, (name, _) in zip(last, self.cell, strict=True)
        ]
        return " ".join([self.method, *(f"{n}={v}" for n, (_, v) in zip(names, self.cell, strict=True))])

    @property
    def runs(self) -> tuple[Record, ...]:
        """The different ones: where the seed changes nothing, as for a base model, all seeds are one run."""
        return tuple({scores_address(record) or str(record.seed): record for record in self.records}.values())

    @property
    def trained(self) -> bool:
        """Whether anything was trained; a base model has no kept rows and no seconds to show."""
        return any(record.steps for record in self.records)


def scores_address(record: Record) -> str | None:
    """The address of the run's scores: what makes two runs the same run."""
    return next((key for stage, key in record.addresses.items() if stage.split(".")[0] == "scores"), None)


def score(record: Record, benchmark: str) -> float | None:
    """The benchmark's value in [0, 1]; None where there is none."""
    value = record.scores.get(benchmark)
    return value if value is not None and math.isfinite(value) else None


def benchmarks(records: Iterable[Record], dataset: str) -> tuple[str, ...]:
    """The benchmarks of a data set's domain: all that any of its runs was asked."""
    runs = [record for record in records if record.dataset == dataset]
    return tuple(sorted({name for run in runs for part in (run.scores, run.items) for name in part}))


def references(line: Line, lines: Iterable[Line], method: str) -> list[Line]:
    """The lines of `method` that `line` is to be held against: they agree on every override both have.

    Where several do, those that share the most overrides.
    """
    own = dict(line.cell)
    matches = [
        (sum(name in own for name, _ in other.cell), other)
        for other in lines
        if (other.dataset, other.model, other.method) == (line.dataset, line.model, method)
        and other is not line
        and all(own.get(name, value) == value for name, value in other.cell)
    ]
    most = max((shared for shared, _ in matches), default=0)
    return [other for shared, other in matches if shared == most]


def same_speed(lines: Iterable[Line]) -> bool:
    """Whether all runs were measured on one machine with one setting, so that seconds compare."""
    return len({speed for line in lines for speed in (_facts(run, SPEED) for run in line.records)}) == 1


def machines(records: Iterable[Record]) -> list[str]:
    """The different machines, as `cpu, cores, torch`."""
    return sorted({_facts(record, MACHINE) for record in records})


def lines(records: Sequence[Record]) -> list[Line]:
    """The table's lines: by data set and model, the base first, then full, random and the others.

    Raises ValueError if there are no records or if two different runs look the same.
    """
    if not records:
        raise ValueError("records: there are none to report; run the study first")
    backends = {record.config.get("scoring", {}).get("backend", "transformers") for record in records}
    if len(backends) > 1:
        raise ValueError(f"scoring.backend: {' and '.join(sorted(backends))} in one table; report them apart")
    constant = dict(set.intersection(*(set(record.overrides.items()) for record in records)))
    groups: dict[tuple[str, str, str, tuple[tuple[str, str], ...]], dict[int, Record]] = {}
    for record in _distinct(records):
        own = {k: v for k, v in record.overrides.items() if k not in NAMED and k not in constant}
        key = (record.dataset, record.model, record.method, tuple(sorted(own.items())))
        twin = groups.setdefault(key, {}).setdefault(record.seed, record)
        if twin is not record:
            raise ValueError(
                f"records: two different runs of {'/'.join(key[:3])} {_cell(own)} have seed {record.seed}; "
                f"they differ in {_first_difference(twin, record)}: sweep it, or report them apart"
            )
    made = [Line(*key, tuple(v for _, v in sorted(seeds.items()))) for key, seeds in groups.items()]
    return sorted(made, key=_order)


def _distinct(records: Sequence[Record]) -> list[Record]:
    """Each run once: cells that are one run, as full data is at every ratio, keep what they share."""
    same: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        name = (record.dataset, record.model, record.method, record.seed, scores_address(record))
        same.setdefault(name if name[-1] else (*name, id(record)), []).append(record)
    runs: list[Record] = []
    for twins in same.values():
        first = min(twins, key=lambda record: json.dumps(vars(record), sort_keys=True, default=str))
        shared = set.intersection(*(set(record.overrides.items()) for record in twins))
        runs.append(replace(first, overrides=dict(sorted(shared))))
    return runs


def _order(line: Line) -> tuple[Any, ...]:
    rank = FIRST.index(line.method) if line.method in FIRST else len(FIRST)
    return line.dataset, line.model, rank, line.method, [(name, _natural(value)) for name, value in line.cell]


def _natural(text: str) -> list[tuple[float, str]]:
    """A key that puts 0.5 before 0.75 before 1.0 and ranks4 before ranks16."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return [(float(part), "") if index % 2 else (math.inf, part) for index, part in enumerate(parts)]


def _facts(record: Record, names: Iterable[str]) -> str:
    return ", ".join(f"{name} {record.machine.get(name, 'unknown')}" for name in names)


def _cell(overrides: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(overrides.items())) or "(no overrides)"


def _first_difference(a: Record, b: Record) -> str:
    names = sorted(
        name for name in a.config.keys() | b.config.keys() if a.config.get(name) != b.config.get(name)
    )
    return f"config {', '.join(names)}" if names else "nothing but their addresses"
