"""The main table, in the shape of the paper's: what is kept, what it costs, saves against full data, scores.

One table per set of benchmarks, as markdown, as LaTeX (booktabs) and for the terminal; all three show the
same cells, made once in `tables`.
"""

import io
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from cluster_bench.record import Record
from cluster_bench.report.lines import (
    Estimate,
    Line,
    average,
    benchmarks,
    estimate,
    lines,
    references,
    same_speed,
)

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


def markdown(records: Sequence[Record]) -> str:
    """The tables as GitHub-flavoured markdown, the notes below."""
    parts: list[str] = []
    for table in tables(records):
        rule = ["---"] * 3 + ["---:"] * (len(table.columns) - 3)
        body = [[_markdown(cell) for cell in row] for row in (table.columns, *_ditto(table.rows))]
        parts.append("\n".join(f"| {' | '.join(row)} |" for row in (body[0], rule, *body[1:])))
    return "\n\n".join([*parts, "\n".join(f"- {_markdown(note)}" for note in notes(records))]) + "\n"


def latex(records: Sequence[Record], title: str) -> str:
    """The tables as `table*` floats; they need the package booktabs."""
    said = " ".join(notes(records))
    head = "% Generated. \\usepackage{booktabs}\n"
    return head + "\n".join(_latex_table(table, f"{title}. {said}") for table in tables(records))


def terminal(records: Sequence[Record], width: int | None = None) -> str:
    """The tables as text, one per data set and model; where `width` is too narrow, without the benchmarks."""
    out = io.StringIO()
    console = Console(file=out, width=1000, color_system=None, emoji=False, highlight=False)
    narrow = False
    for table in tables(records):
        for group in dict.fromkeys(row[:2] for row in table.rows):
            shown = _shown(table, group, table.columns[2:])
            if width is not None and console.measure(shown).maximum > width:
                narrow = True
                shown = _shown(table, group, ("method", "runs", *COSTS, "average"))
            console.print(shown)
    left_out = ["The benchmarks' own columns need a wider terminal."] if narrow else []
    for note in [*left_out, *notes(records)]:
        console.print(note, markup=False, width=width)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _shown(table: Table, group: tuple[str, ...], names: Sequence[str]) -> RichTable:
    shown = RichTable(
        title=Text(" · ".join(group)),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
    )
    columns = [index for index, name in enumerate(table.columns) if name in names]
    for name in (table.columns[index] for index in columns):
        justify = "left" if name == "method" else "right"
        shown.add_column(Text("\n".join(_heading(name))), justify=justify, no_wrap=True)
    for row in table.rows:
        if row[:2] == group:
            shown.add_row(*(Text(row[index]) for index in columns))
    return shown


def _heading(name: str) -> tuple[str, str]:
    """A column's name on two lines: `kept rows %` as `kept` and `rows %`, `average` on the second."""
    first, gap, rest = name.replace("_", " ", 1).partition(" ")
    return (first, rest) if gap else ("", name)


def percent(value: Estimate | None, sign: str = "") -> str:
    """`56.8 ± 0.4` over seeds, `56.8 ± 3.9†` over items, `56.8` without an error.

    >>> percent(Estimate(0.568, 0.004, True, 3)), percent(Estimate(0.568, 0.039, False, 1)), percent(None)
    ('56.8 ± 0.4', '56.8 ± 3.9†', '—')
    """
    if value is None:
        return NONE
    mean = f"{100 * value.mean:{sign}.1f}"
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
    """The average over runs; where only some runs are complete, over those, and it says so."""
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


def _ditto(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Name a data set and a model only where they change."""
    shown: list[tuple[str, ...]] = []
    for above, row in zip([("", "", ""), *rows], rows, strict=False):
        dataset = "" if row[0] == above[0] else row[0]
        shown.append((dataset, "" if row[:2] == above[:2] else row[1], *row[2:]))
    return shown


def _markdown(cell: str) -> str:
    """Escape what markdown would read as markup.

    >>> print(_markdown("_a|b*"), _markdown("kept_rows"))
    \\_a\\|b\\* kept_rows
    """
    text = re.sub(r"([\\|*`<\[\]])", r"\\\1", cell)
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", text)


LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "±": r"$\pm$",
    "†": r"$^\dagger$",
    "·": r"$\cdot$",
    NONE: "---",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def _latex(cell: str) -> str:
    """Escape every sign that LaTeX would read as a command.

    >>> print(_latex("a_b & 50% ± 1 — {x}\\\\"))
    a\\_b \\& 50\\% $\\pm$ 1 --- \\{x\\}\\textbackslash{}
    """
    escaped = "".join(LATEX.get(sign, sign) for sign in cell)
    return f"${escaped[0]}${escaped[1:]}" if re.match(r"[-+]\d", escaped) else escaped


def _latex_table(table: Table, caption: str) -> str:
    body: list[str] = []
    for row in _ditto(table.rows):
        if body and row[0]:
            body.append("\\midrule")
        elif body and row[1]:
            body.append(f"\\cmidrule{{2-{len(row)}}}")
        body.append(" & ".join(_latex(cell) for cell in row) + r" \\")
    out = [
        "\\begin{table*}",
        "\\centering\\scriptsize\\setlength{\\tabcolsep}{3pt}",
        f"\\caption{{{_latex(caption)}}}",
        f"\\begin{{tabular}}{{lll{'r' * (len(table.columns) - 3)}}}",
        "\\toprule",
        *(" & ".join(map(_latex, row)) + r" \\" for row in zip(*map(_heading, table.columns), strict=True)),
        "\\midrule",
        *body,
        "\\bottomrule",
        "\\end{tabular}",
        "\\end{table*}",
    ]
    return "\n".join(out) + "\n"
