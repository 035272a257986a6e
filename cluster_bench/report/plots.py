"""The frontier: accuracy against total time, one panel per data set and model, one mark per run.

Colours are Okabe and Ito's, safe for colour-blind readers; every method has a shape of its own as well. The
bytes depend on the records alone: a fixed hash salt, no dates, no software names.
"""

import io
import math
import statistics
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cluster_bench.record import Record
from cluster_bench.report.lines import Line, average, benchmarks, lines, machines

BLACK, GREY = "#000000", "#767676"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
SHAPES = ("o", "^", "D", "v", "P", "X", "<", "p", ">", "h", "8")  # 11 and 6 share no factor: 66 pairs
LOOK: Any = {
    "svg.hashsalt": "cluster_bench",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
}


def frontier(records: Sequence[Record]) -> dict[str, bytes]:
    """The figure as `svg` and `png` bytes.

    Raises ValueError where runs of different machines would share it: their seconds do not compare.
    """
    found = machines(records)
    if len(found) > 1:
        raise ValueError(
            f"records: runs of {len(found)} machines cannot share a figure; report each apart: "
            + " | ".join(found)
        )
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(LOOK)
        figure = _figure(records)
        out: dict[str, bytes] = {}
        for kind, metadata in (("svg", {"Date": None, "Creator": None}), ("png", {"Software": None})):
            file = io.BytesIO()
            figure.savefig(file, format=kind, dpi=200, metadata=metadata)
            out[kind] = file.getvalue()
    return out


def styles(table: Sequence[Line]) -> dict[str, tuple[str, str]]:
    """Colour and shape of each method: base grey, full black, the others in the order of the table."""
    methods = dict.fromkeys(line.method for line in table)
    others = [method for method in methods if method not in ("base", "full")]
    made = {method: (COLOURS[i % len(COLOURS)], SHAPES[i % len(SHAPES)]) for i, method in enumerate(others)}
    known = {"base": (GREY, "_"), "full": (BLACK, "s"), **made}
    return {method: known[method] for method in methods}


def _figure(records: Sequence[Record]) -> Figure:
    table = lines(records)
    style = styles(table)
    panels: dict[tuple[str, str], list[Line]] = {}
    for line in table:
        panels.setdefault((line.dataset, line.model), []).append(line)
    across = min(3, len(panels))
    down = math.ceil(len(panels) / across)
    figure = Figure(figsize=(max(2.9 * across, 3.6), 2.6 * down + 0.5), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    for axis, (name, part) in zip(axes.flat, panels.items(), strict=False):
        _panel(axis, part, benchmarks(records, name[0]), style)
        axis.set_title(" · ".join(name), loc="left")
    for axis in axes[:, 0]:
        axis.set_ylabel("average accuracy (%)")
    figure.legend(
        handles=[_key(method, *look) for method, look in style.items()],
        loc="outside lower center",
        ncols=min(5, len(style)),
        handletextpad=0.3,
        columnspacing=1.2,
        title="small: one run; large: their mean",
        title_fontsize=7,
    )
    return figure


def _panel(axis: Axes, part: list[Line], names: Sequence[str], style: dict[str, tuple[str, str]]) -> None:
    swept = {line.method for line in part if sum(other.method == line.method for other in part) > 1}
    for line in part:
        colour, shape = style[line.method]
        points = [(run.total_seconds, average(run, names)) for run in line.runs]
        known = [(x, 100 * y) for x, y in points if y is not None]
        if not known:
            continue
        x, y = (statistics.fmean(values) for values in zip(*known, strict=True))
        if not line.trained:
            axis.axhline(y, color=colour, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
            continue
        for run_x, run_y in known:
            axis.plot([x, run_x], [y, run_y], color=colour, linewidth=0.6, alpha=0.6, zorder=2)
            axis.plot(
                run_x, run_y, shape, color=colour, markersize=3.4, markeredgewidth=0, alpha=0.75, zorder=3
            )
        if len(known) > 1:
            axis.plot(x, y, shape, color=colour, markersize=6.5, markeredgecolor="white", zorder=4)
        if line.method in swept:
            text = ", ".join(f"{name.rpartition('.')[2]}={value}" for name, value in line.cell)
            axis.annotate(
                text,
                (x, y),
                (0, -6),
                textcoords="offset points",
                ha="center",
                va="top",
                fontsize=6,
                color=colour,
            )
    axis.set_xlim(left=0)
    axis.margins(x=0.08, y=0.1)
    axis.set_xlabel("selection + training, measured (s)")


def _key(method: str, colour: str, shape: str) -> Line2D:
    if method == "base":
        return Line2D([], [], color=colour, linewidth=0.8, linestyle=(0, (4, 3)), label="base (untrained)")
    return Line2D(
        [], [], color=colour, marker=shape, linestyle="", markersize=6, markeredgecolor="white", label=method
    )
