"""The main table, in the shape of the paper's: what is kept, what it costs, saves against full data, scores.

One table per set of benchmarks. Here are the cells and the notes below them; `formats` writes them down.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cluster_bench.record import Record
from cluster_bench.report.estimates import Estimate, average, estimate
from cluster_bench.report.lines import Line, benchmarks, lines, references, same_speed

NONE = "—"
COSTS = (
    "kept rows %",
    "kept tokens %",
    "selection s",
    "training s",
    "modelled training s",
    "total s",
    "saving %",
)


@dataclass(frozen=True)
class Table:
    """The lines of one set of benchmarks: three names, then a cell per column."""

    columns: tuple[str, ...]  # dataset, model, method, then numbers
    rows: tuple[tuple[str, ...], ...]


def tables(records: Sequence[Record]) -> list[Table]:
    """One table per set of benchmarks, in the order of the data sets."""
    table = lines(records)
    domains: dict[tuple[str, ...], list[Line]] = {}
    for line in table:
        domains.setdefault(benchmarks(records, line.dataset), []).append(line)
    return [_table(part, names) for names, part in domains.items()]


def notes(records: Sequence[Record]) -> list[str]:
    """What a reader must know to read the numbers, one sentence each; only those that apply."""
    table = lines(records)
    said = [
        "Scores are percentages; ± is the standard error over seeds, where there are two or more runs.",
        "Saving is of the total (selection and training) against full data on the same machine.",
    ]
    if any(len(line.runs) == 1 for line in table):
        said.append(
            "† One run: ± is the standard error over the benchmark's items, not over seeds; for the average, "
            "the mean of the benchmarks' errors, an upper bound."
        )
    if _modelled(table):
        said.append(
            "Modelled training s: fewer processes than ranks were there, so the ranks took turns; this is "
            "the time with a process for each rank, which nobody ran. Total and saving use measured seconds."
        )
    return [*said, f"{NONE} means not measured, or not to be compared."]


def percent(value: Estimate | None) -> str:
    """`56.8 ± 0.4` over seeds, `56.8 ± 3.9†` over items, `56.8` without an error.

    >>> percent(Estimate(0.568, 0.004, True, 3)), percent(Estimate(0.568, 0.039, False, 1)), percent(None)
    ('56.8 ± 0.4', '56.8 ± 3.9†', '—')
    """
    if value is None:
        return NONE
    mean = f"{100 * value.mean:.1f}"
    if value.error is None:
        return mean
    return f"{mean} ± {100 * value.error:.1f}" + ("" if value.over_seeds else "†")


def _table(part: list[Line], names: tuple[str, ...]) -> Table:
    costs = [name for name in COSTS if _modelled(part) or not name.startswith("modelled")]
    columns = ("dataset", "model", "method", "runs", *costs, *names, "average")
    rows: list[tuple[str, ...]] = []
    for line in part:
        cost = _costs(line, part)
        scores = [percent(estimate(line, [name])) for name in names]
        shown = [cost.get(name, NONE) for name in costs]
        rows.append(
            (
                line.dataset,
                line.model,
                line.label,
                str(len(line.runs)),
                *shown,
                *scores,
                _average(line, names),
            )
        )
    return Table(columns, tuple(rows))


def _average(line: Line, names: tuple[str, ...]) -> str:
    """The average over runs; where only some of them have one, a dash and how many."""
    complete = [run for run in line.runs if average(run, names) is not None]
    if 0 < len(complete) < len(line.runs):
        return f"{NONE} ({len(complete)} of {len(line.runs)} runs complete)"
    return percent(estimate(line, names))


def _costs(line: Line, part: list[Line]) -> dict[str, str]:
    if not line.trained:
        return {}
    runs = line.runs
    costs = {
        "kept rows %": f"{100 * statistics.fmean(run.kept_rows / run.rows for run in runs):.1f}",
        "kept tokens %": f"{100 * statistics.fmean(run.kept_tokens / run.corpus_tokens for run in runs):.1f}",
    }
    if not same_speed([line]):
        return costs
    costs["selection s"] = _seconds(runs, lambda run: run.selection_seconds)
    costs["training s"] = _seconds(runs, lambda run: run.train_seconds)
    costs["total s"] = _seconds(runs, lambda run: run.total_seconds)
    if all(run.processes < run.ranks for run in runs):
        costs["modelled training s"] = _seconds(runs, lambda run: run.modelled_train_seconds)
    saved = saving(line, part)
    return costs if saved is None else {**costs, "saving %": f"{100 * saved:.1f}"}


def saving(line: Line, part: Sequence[Line]) -> float | None:
    """The share of full data's total seconds that `line` saves; None without one full line to compare."""
    full = [line] if line.method == "full" else references(line, part, "full")
    if len(full) != 1 or not line.trained or not same_speed([line, full[0]]):
        return None
    whole = statistics.fmean(run.total_seconds for run in full[0].runs)
    return 1 - statistics.fmean(run.total_seconds for run in line.runs) / whole if whole > 0 else None


def _modelled(part: Sequence[Line]) -> bool:
    return any(run.processes < run.ranks for line in part if line.trained for run in line.runs)


def _seconds(runs: Sequence[Record], of: Callable[[Record], float]) -> str:
    mean = statistics.fmean(of(run) for run in runs)
    return "0" if mean == 0 else f"{mean:.2f}" if mean < 10 else f"{mean:.1f}"
