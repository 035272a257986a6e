"""What finished runs say together: a table, a figure and a page, generated from their records alone.

    report.write(records, Path("results/toy/main"), "main: ...", "make reproduce")   # six files
    print(report.text(records))                                                      # the main table

Missing is missing: an empty cell in scores.csv, a dash in the tables, never 0. Equal records give equal
bytes.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster_bench.record import Record

FILES = ("scores.csv", "table.md", "table.tex", "frontier.svg", "frontier.png", "README.md")


def write(records: Sequence[Record], folder: Path, title: str, command: str = "") -> None:
    """Write scores.csv, table.md, table.tex, frontier.svg, frontier.png and README.md into `folder`.

    `command` is the line that makes the study again; README.md quotes it. Everything is made before anything
    is written, and nothing where the folder holds it already. Raises ValueError if there are no records, if
    two different runs look the same, or if runs of different machines would share the figure.
    """
    inputs = _inputs(records, title, command)
    if _is_current(folder, inputs):
        return
    from cluster_bench.report import formats, frame, plots, readme

    figure = plots.frontier(records)
    files = {
        "scores.csv": frame.csv(records).encode(),
        "table.md": f"# {title}\n\n{formats.markdown(records)}".encode(),
        "table.tex": formats.latex(records, title).encode(),
        "frontier.svg": figure["svg"],
        "frontier.png": figure["png"],
        "README.md": readme.page(records, title, command).encode(),
    }
    files["README.md"] += _stamp(inputs, files)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        partial = folder / f".{name}.{os.getpid()}"
        partial.write_bytes(content)
        partial.replace(folder / name)


def text(records: Sequence[Record], width: int | None = None) -> str:
    """The main table for a terminal of `width` columns, or as wide as it needs to be."""
    from cluster_bench.report import formats

    return formats.terminal(records, width)


def _inputs(records: Sequence[Record], title: str, command: str) -> bytes:
    """All that decides the files: the records in any order, and this package's own text."""
    told = sorted(json.dumps(vars(record), sort_keys=True, default=str) for record in records)
    code = [path.read_text() for path in sorted(Path(__file__).parent.glob("*.py"))]
    return json.dumps([told, title, command, code]).encode()


def _stamp(inputs: bytes, files: Mapping[str, bytes]) -> bytes:
    """The last line of README.md: a hash of the inputs and of every file above it."""
    digest = hashlib.sha256(inputs)
    for name in FILES:
        digest.update(files[name])
    return f"\n<!-- {digest.hexdigest()} -->\n".encode()


def _is_current(folder: Path, inputs: bytes) -> bool:
    """Whether the folder holds what `write` would write: drawing takes seconds, looking milliseconds."""
    if not all((folder / name).is_file() for name in FILES):
        return False
    files = {name: (folder / name).read_bytes() for name in FILES}
    size = len(_stamp(inputs, files))
    files["README.md"], stamp = files["README.md"][:-size], files["README.md"][-size:]
    return stamp == _stamp(inputs, files)
