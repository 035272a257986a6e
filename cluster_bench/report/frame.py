"""Every run as a row of scores.csv: all parameters, scores, errors, counts and facts, one column each."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pandas as pd

from cluster_bench.record import Record
from cluster_bench.report.estimates import average
from cluster_bench.report.lines import benchmarks, lines, score

GROUPS = (
    "override",
    "score",
    "micro",
    "stderr",
    "items",
    "count",
    "contaminated",
    "noise",
    "failing",
    "vacuous",
    "config",
    "address",
    "protocol",
    "version",
    "machine",
)
NOT_PARAMETERS = (
    "store",
    "plan",
    "study",
    "tracking",
    "launcher",
    "confirmed",
)  # of the configuration: not what is run


def frame(records: Sequence[Record]) -> pd.DataFrame:
    """One row per run, every parameter, score, error, count and fact in a column of its own."""
    table = lines(records)
    rows = [_row(record, benchmarks(records, record.dataset)) for line in table for record in line.records]
    seen = {name for row in rows for name in row}
    fixed = [name for name in rows[0] if "." not in name]
    return pd.DataFrame(rows, columns=[*fixed, *sorted(seen - set(fixed), key=_column)], dtype=object)


def csv(records: Sequence[Record]) -> str:
    """`frame` as text; what a run lacks is an empty cell."""
    return frame(records).to_csv(index=False, lineterminator="\n")


def _row(record: Record, names: Sequence[str]) -> dict[str, Any]:
    own = {name: value for name, value in vars(record).items() if not isinstance(value, dict)}
    parts: list[Mapping[str, Any]] = [
        record.overrides,
        {name: score(record, name) for name in record.scores},
        record.micro,
        {name: value for name, value in record.stderr.items() if math.isfinite(value)},
        record.items,
        record.counts,
        record.contaminated,
        record.noise,
        record.failing,
        record.vacuous,
        {name: value for name, value in record.config.items() if name not in NOT_PARAMETERS},
        record.addresses,
        record.protocols,
        record.versions,
        record.machine,
    ]
    row = {**own, "total_seconds": record.total_seconds, "average": average(record, names)}
    for group, part in zip(GROUPS, parts, strict=True):
        row |= _flat(part, group)
    return row


def _flat(tree: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        key = f"{prefix}.{name}"
        if isinstance(value, Mapping) and value:
            flat |= _flat(cast("Mapping[str, Any]", value), key)
        elif isinstance(value, str | int | float) and not isinstance(value, bool):
            flat[key] = value
        elif value is not None or prefix.startswith("config"):  # a parameter that is null is not missing
            flat[key] = json.dumps(value, default=str)
    return flat


def _column(name: str) -> tuple[int, str]:
    return GROUPS.index(name.split(".")[0]), name
