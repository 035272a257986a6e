"""The main table as markdown, as LaTeX (booktabs) and for the terminal; all three show the same cells."""

import io
import re
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from cluster_bench.record import Record
from cluster_bench.report.tables import COSTS, NONE, Table, notes, tables


def markdown(records: Sequence[Record]) -> str:
    """The tables as GitHub-flavoured markdown, the notes below."""
    parts: list[str] = []
    for table in tables(records):
        rule = ["---"] * 3 + ["---:"] * (len(table.columns) - 3)
        body = [[escape(cell) for cell in row] for row in (table.columns, *_ditto(table.rows))]
        parts.append("\n".join(f"| {' | '.join(row)} |" for row in (body[0], rule, *body[1:])))
    return "\n\n".join([*parts, "\n".join(f"- {escape(note)}" for note in notes(records))]) + "\n"


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


def _ditto(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Name a data set and a model only where they change."""
    shown: list[tuple[str, ...]] = []
    for above, row in zip([("", "", ""), *rows], rows, strict=False):
        dataset = "" if row[0] == above[0] else row[0]
        shown.append((dataset, "" if row[:2] == above[:2] else row[1], *row[2:]))
    return shown


def escape(cell: str) -> str:
    """Escape what markdown would read as markup.

    >>> print(escape("_a|b*"), escape("kept_rows"))
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
