"""The page that lies beside a study's numbers: what it is, how to make it again, what was measured where."""

from collections.abc import Collection, Mapping, Sequence

from cluster_bench.record import Record
from cluster_bench.report.estimates import Estimate, average, paired
from cluster_bench.report.formats import escape, markdown
from cluster_bench.report.lines import Line, benchmarks, lines, references
from cluster_bench.report.tables import NONE


def page(records: Sequence[Record], title: str, command: str = "") -> str:
    """README.md of a results folder, generated from the records and the command line that made them."""
    parts = [
        f"# {title}",
        "Generated from the runs' records; change the study, not this page. `scores.csv` has every run "
        "with every parameter, `table.md` and `table.tex` the main table, `frontier.svg` and `frontier.png` "
        "the figure.",
        _study(lines(records)),
    ]
    if command:
        parts += ["## Make it again", f"```\n{command}\n```"]
    parts += [
        "## Main table",
        markdown(records).strip(),
        "![Average accuracy against total seconds](frontier.svg)",
        "## Paired differences",
        _differences(records),
        "## What was asked and how it was answered",
        _answers(records),
        *_unsound(records),
        *_noise(records),
        *_doubts(records),
        "## Where and how it was measured",
        _machine(records),
        _measured(records),
    ]
    return "\n\n".join(parts) + "\n"


def _study(table: Sequence[Line]) -> str:
    records = [record for line in table for record in line.records]
    facts = {
        "study": {record.study for record in records},
        "data sets": {line.dataset for line in table},
        "models": {line.model for line in table},
        "methods": dict.fromkeys(line.label for line in table),
        "seeds": {record.seed for record in records},
        "ranks": {record.ranks for record in records},
    }
    said = [
        f"- {name}: {', '.join(map(str, values if isinstance(values, Mapping) else sorted(values)))}"
        for name, values in facts.items()
    ]
    return "\n".join(
        [*said, f"- runs: {len(records)}, of which different: {sum(len(line.runs) for line in table)}"]
    )


def _differences(records: Sequence[Record]) -> str:
    """Each trained line but full's, minus full and minus random, seed by seed, in points of the average."""
    table = lines(records)
    rows: list[str] = []
    for line in table:
        names = benchmarks(records, line.dataset)
        for method in ("full", "random"):
            for other in references(line, table, method) if _compared(line, method) else []:
                value = paired(line, other, names)
                rows.append(_line((line.dataset, line.model, line.label, other.label, *_points(value))))
    if not rows:
        return "None: a difference needs a trained method beside full or random."
    head = "| dataset | model | method | minus | difference (points) | standard error | seeds |"
    rule = "| --- | --- | --- | --- | ---: | ---: | ---: |"
    said = (
        "The average of a method minus that of full data and of random rows with the same seed: mean over "
        "the seeds that both have, and its standard error, which needs two."
    )
    return "\n".join([said, "", head, rule, *rows])


def _compared(line: Line, method: str) -> bool:
    return line.trained and line.method not in ("full", method)


def _points(value: Estimate | None) -> tuple[str, str, str]:
    if value is None:
        return NONE, NONE, "0"
    error = NONE if value.error is None else f"{100 * value.error:.2f}"
    return f"{100 * value.mean:+.2f}", error, str(value.runs)


def _answers(records: Sequence[Record]) -> str:
    """Items, protocol and what became of the answers, per data set and benchmark, over its different runs."""
    table = lines(records)
    runs: dict[str, list[Record]] = {}
    for line in table:
        runs.setdefault(line.dataset, []).extend(line.runs)
    outcomes = sorted({out for run in records for counts in run.counts.values() for out in counts})
    rows = [
        ("dataset", "benchmark", "items", *(name.replace("_", " ") for name in outcomes), "protocol"),
        ("---", "---", *["---:"] * (1 + len(outcomes)), "---"),
    ]
    for dataset, part in runs.items():
        for name in benchmarks(records, dataset):
            items = {str(run.items[name]) for run in part if name in run.items}
            protocols = {run.protocols[name] for run in part if name in run.protocols}
            counts = [run.counts.get(name, {}) for run in part]
            totals = [[count[out] for count in counts if out in count] for out in outcomes]
            shown = [str(sum(total)) if total else NONE for total in totals]
            rows.append((dataset, name, _joined(items), *shown, _joined(protocols)))
    return "\n".join(["Answers of all different runs together.", "", *map(_line, rows)])


def _unsound(records: Sequence[Record]) -> list[str]:
    """Items that nothing or that everything passes, where there are any."""
    kinds = {
        "fails its own reference solution: nothing passes": [run.failing for run in records],
        "passes a function that does nothing: everything does": [run.vacuous for run in records],
    }
    said = dict.fromkeys(
        f"- {name}: {', '.join(map(str, of[name]))} {what}"
        for what, found in kinds.items()
        for of in found
        for name in of
    )
    about = (
        "By their number in the benchmark's file, from 0. Those that are asked count in the scores, as they "
        "do elsewhere."
    )
    return ["## Items that cannot tell right from wrong", "\n".join([about, "", *said])] if said else []


def _noise(records: Sequence[Record]) -> list[str]:
    """How far scores move by the batch and its order alone, where that was measured."""
    rows = [
        _line((run.dataset, run.method, str(run.seed), name, f"{of['items']:g}", f"{100 * of['spread']:.1f}"))
        + f" {of['changed']:g} |"
        for run in records
        for name, of in run.noise.items()
    ]
    if not rows:
        return []
    said = (
        "The first items asked in four ways, two batch sizes by two orders: the largest accuracy minus the "
        "smallest, and the items whose verdict is not the same in all four. A smaller difference is none."
    )
    head = "| dataset | method | seed | benchmark | items | spread (points) | items changed |"
    return ["## Noise floor", "\n".join([said, "", head, f"| {'--- | ' * 4}---: | ---: | ---: |", *rows])]


def _doubts(records: Sequence[Record]) -> list[str]:
    """Scores that look like a broken protocol and were confirmed."""
    said = dict.fromkeys(
        f"- {run.method}, {run.dataset}, seed {run.seed}: {of[0]}"
        for run in records
        for of in run.doubts.values()
    )
    return ["## Doubted scores", "\n".join(["Looked at, and confirmed.", "", *said])] if said else []


def _joined(values: Collection[str]) -> str:
    return ", ".join(sorted(values)) or NONE


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(escape, cells))} |"


def _machine(records: Sequence[Record]) -> str:
    facts: dict[str, set[str]] = {}
    for record in records:
        for name, value in {**record.machine, "processes": record.processes}.items():
            facts.setdefault(name, set()).add(str(value))
        for name, value in record.versions.items():
            facts.setdefault(name, set()).add(str(value))
    return "\n".join(f"- {name}: {', '.join(sorted(values))}" for name, values in facts.items())


def _measured(records: Sequence[Record]) -> str:
    said = [
        "- Measured: selection s (features, clusters, selection and allocation; 0 where no feature is used) "
        "and training s (optimizer steps: no model load, no saving). Each inside its stage, on the machine "
        "above. Scoring is the same for every method and is left out."
    ]
    if any(record.steps and record.processes < record.ranks for record in records):
        said.append(
            "- Modelled: modelled training s, where the machine ran fewer processes than the method has "
            "ranks, which took turns: the time with a process for each rank. Nobody ran it."
        )
    else:
        said.append("- Modelled: nothing.")
    names = {record.dataset: benchmarks(records, record.dataset) for record in records}
    lost = sum(average(record, names[record.dataset]) is None for record in records)
    said.append(f"- Runs without an average, for want of a benchmark: {lost}.")
    return "\n".join(said)
