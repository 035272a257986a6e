"""What finished runs say together: a table, a figure and a page, generated from their records alone.

    report.write(records, Path("results/toy/main"), "main: ...", "make reproduce")   # six files
    print(report.text(records))                                                      # the main table

Missing is missing: an empty cell in scores.csv, a dash in the tables, never 0. Equal records give equal
bytes.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from cluster_bench.record import Record


def write(records: Sequence[Record], folder: Path, title: str, command: str = "") -> None:
    """Write scores.csv, table.md, table.tex, frontier.svg, frontier.png and README.md into `folder`.

    `command` is the line that makes the study again; README.md quotes it. Everything is made before anything
    is written. Raises ValueError if there are no records, if two different runs look the same, or if runs of
    different machines would share the figure.
    """
    from cluster_bench.report import frame, plots, readme, tables

    figure = plots.frontier(records)
    files = {
        "scores.csv": frame.csv(records).encode(),
        "table.md": f"# {title}\n\n{tables.markdown(records)}".encode(),
        "table.tex": tables.latex(records, title).encode(),
        "frontier.svg": figure["svg"],
        "frontier.png": figure["png"],
        "README.md": readme.page(records, title, command).encode(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        partial = folder / f".{name}.{os.getpid()}"
        partial.write_bytes(content)
        partial.replace(folder / name)


def text(records: Sequence[Record], width: int | None = None) -> str:
    """The main table for a terminal of `width` columns, or as wide as it needs to be."""
    from cluster_bench.report import tables

    return tables.terminal(records, width)
