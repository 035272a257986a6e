"""The modelled table as a page to read, and its figure."""

import io
from collections.abc import Sequence
from typing import Any

from cluster_bench.cost.published import PUBLISHED, hours
from cluster_bench.cost.table import Row

HEAD = """# What the paper's runs would cost: modelled

Every number here is **modelled**: nobody ran it. `python -m cluster_bench.cost` writes this folder from the
formulas and constants of [cluster_bench/cost](../../../cluster_bench/cost); tests hold those to published
throughput, memory and disk within 15%. The only numbers that somebody measured are marked *published*: hours
on 4 H100 from a digest of the paper, which does not say whether they contain the selection.

* **paper loop**: one row at a time, bfloat16 autocast over float32 weights, not compiled.
* **fast loop**: rows packed to 8,192 tokens, compiled, chunked cross-entropy.
* Both train replicated where that fits, else sharded, else sharded with activation checkpointing.
* A sharded loop that takes one row at a time waits for the weights to be gathered: its time hardly depends on
  the row's length.
* Selection is counted on the same GPUs as training, in epochs of the fast loop: CluSTER's feature 1/3, a
  sketch of all layers 2/3, IFD 2/3, per-example gradients with a dense projection 1.9, LESS 9, S2L the FLOPs
  of its proxy. Clustering is not counted.
* Rows are assumed to be equally long in every selection. Tokens per row are bytes of text per row (dataset
  pages) over an assumed 3.3 (code) or 4.0 (prose) bytes per token: hours scale with them.
* H200 has H100's compute; no published bfloat16 row was found to hold it to.
"""

BESIDE = (
    "† modelled training in the paper loop over published. Nothing was fitted to these hours, but the tokens "
    "per row are assumed, and whether the paper trained replicated or sharded is not known: "
    "agreement is weak evidence."
)


def page(table: Sequence[Row]) -> str:
    """README.md of the folder."""
    modelled = [row for row in table if row.source == "modelled"]
    parts = [HEAD, "## Beside the paper's hours: 4 H100, 7B", _beside(modelled), "![hours](hours.svg)"]
    parts += ["## Hours and saving on H100, selection included"]
    for dataset, model in dict.fromkeys((row.dataset, row.model) for row in modelled):
        block = [row for row in modelled if (row.dataset, row.model, row.gpu) == (dataset, model, "H100")]
        parts += [f"### {dataset} · {model} (modelled)", _hours(block)]
    parts += ["## How each model is trained, GiB on each GPU (modelled)", _memory(modelled)]
    parts += ["[modelled.csv](modelled.csv) has every row, A100 and H200 too."]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _beside(modelled: Sequence[Row]) -> str:
    head = (
        "dataset",
        "model",
        "method",
        "kept",
        "published h",
        "modelled h: training",
        "selection",
        "ratio†",
    )
    lines: list[tuple[str, ...]] = []
    for run in PUBLISHED:
        (row,) = [
            row
            for row in modelled
            if (row.dataset, row.model, row.method) == (run.dataset, run.model, run.method)
            and (row.gpu, row.gpus, row.loop) == ("H100", 4, "paper")
        ]
        selection, training = row.selection or 0.0, row.training or 0.0
        numbers = (f"{run.hours:.2f}", f"{training:.2f}", f"{selection:.2f}")
        ratio = f"{training / run.hours:.2f}"
        lines.append((run.dataset, run.model, run.method, f"{run.kept:.0%}", *numbers, ratio))
    return _table(head, lines, 3) + "\n\n" + BESIDE


def _hours(block: Sequence[Row]) -> str:
    ways = [(gpus, loop) for gpus in (4, 8) for loop in ("paper", "fast")]
    head = ("method", "kept", *(f"{gpus} GPUs, {loop} loop" for gpus, loop in ways), "published, 4 GPUs")
    lines: list[tuple[str, ...]] = []
    for method in dict.fromkeys(row.method for row in block):
        found = {(row.gpus, row.loop): row for row in block if row.method == method}
        first = found[ways[0]]
        cells = [f"{found[way].total:.2f} h ({found[way].saving:+.0%})" for way in ways]
        known = hours(first.dataset, first.model, method)
        lines.append((method, f"{first.kept:.0%}", *cells, "" if known is None else f"{known:.2f} h"))
    return _table(head, lines, 2)


def _memory(modelled: Sequence[Row]) -> str:
    where = list(dict.fromkeys((row.gpus, row.gpu) for row in modelled))
    head = ("dataset", "model", "loop", *(f"{gpus} {gpu}" for gpus, gpu in where))
    lines: list[tuple[str, ...]] = []
    for key in dict.fromkeys((row.dataset, row.model, row.loop) for row in modelled):
        found = {
            (row.gpus, row.gpu): f"{row.gib:.0f}, {row.how}"
            for row in modelled
            if (row.dataset, row.model, row.loop) == key
        }
        lines.append((*key, *(found[place] for place in where)))
    return _table(head, lines, 3)


def _table(head: Sequence[str], lines: Sequence[Sequence[str]], names: int) -> str:
    rule = ["---"] * names + ["---:"] * (len(head) - names)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *lines))


def figure(table: Sequence[Row]) -> bytes:
    """Hours of the 7B models on 4 H100 in the paper loop, the published ones as diamonds; SVG."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    from cluster_bench.report.plots import BLACK, COLOURS, LOOK

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(LOOK)
        drawn = Figure(figsize=(9, 3.2), layout="constrained")
        for axis, name in zip(drawn.subplots(1, 2), ("oss_instruct", "medinstruct"), strict=True):
            _panel(axis, [row for row in table if row.dataset == name and row.model.endswith("_7b")])
            axis.set_title(name, loc="left")
        bars = [Patch(color=colour) for colour in COLOURS[:2]]
        diamond = Line2D([], [], color=BLACK, marker="D", linestyle="")
        labels = ["training, modelled", "selection, modelled", "published"]
        drawn.legend([*bars, diamond], labels, loc="outside lower center", ncols=3)
        file = io.BytesIO()
        drawn.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()


def _panel(axis: Any, rows: Sequence[Row]) -> None:
    from cluster_bench.report.plots import BLACK, COLOURS

    bars = [row for row in rows if (row.gpu, row.gpus, row.loop) == ("H100", 4, "paper")]
    names = [row.method for row in bars]
    training = [row.training for row in bars]
    axis.barh(names, training, color=COLOURS[0])
    axis.barh(names, [row.selection for row in bars], left=training, color=COLOURS[1])
    known = [(row.total, row.method) for row in rows if row.source == "published"]
    axis.plot(*zip(*known, strict=True), "D", color=BLACK, markersize=4)
    axis.invert_yaxis()
    axis.set_xlabel("hours, 7B on 4 H100, paper loop")
