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
from cluster_bench.report.estimates import average
from cluster_bench.report.lines import Line, benchmarks, lines, machines

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
    """Colour and shape of each trained method: full black, the others in the order of the table."""
    methods = dict.fromkeys(line.method for line in table if line.trained)
    others = [method for method in methods if method != "full"]
    made = {method: (COLOURS[i % len(COLOURS)], SHAPES[i % len(SHAPES)]) for i, method in enumerate(others)}
    return {method: made.get(method, (BLACK, "s")) for method in methods}


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
    if not style:
        return figure
    figure.legend(
        handles=[_key(method, *look) for method, look in style.items()],
        loc="outside lower center",
        ncols=min(len(style), int(figure.get_figwidth() / 1.2)),
        handletextpad=0.3,
        columnspacing=1.2,
        title="filled: one run; open: the mean over seeds",
        title_fontsize=7,
    )
    return figure


def _panel(axis: Axes, part: list[Line], names: Sequence[str], style: dict[str, tuple[str, str]]) -> None:
    base: float | None = None
    swept = {line.method for line in part if sum(other.method == line.method for other in part) > 1}
    for line in part:
        points = [(run.total_seconds, average(run, names)) for run in line.runs]
        known = [(x, 100 * y) for x, y in points if y is not None]
        if not known:
            continue
        x, y = (statistics.fmean(values) for values in zip(*known, strict=True))
        if not line.trained:
            base = y
            continue
        colour, shape = style[line.method]
        has_mean = 1 < len(known) == len(line.runs)  # as in the table, which shows none if a run lacks one
        for run_x, run_y in known:
            if has_mean:
                axis.plot([x, run_x], [y, run_y], color=colour, linewidth=0.6, zorder=2)
            axis.plot(run_x, run_y, shape, color=colour, markersize=4, markeredgewidth=0, alpha=0.8, zorder=3)
        if has_mean:
            axis.plot(x, y, shape, color=colour, markersize=8, markerfacecolor="none", zorder=4)
        if line.method in swept:
            text = ", ".join(f"{name.rpartition('.')[2]}={value}" for name, value in line.cell)
            axis.annotate(
                text, (x, y), (6, -4), textcoords="offset points", fontsize=6, color=colour, va="top"
            )
    axis.margins(x=0.1, y=0.12)
    axis.set_xlim(left=0)
    axis.set_xlabel("selection + training, measured (s)")
    if base is not None:
        _base(axis, base)


def _base(axis: Axes, level: float) -> None:
    """A dashed line at the base model's average, or the number at the edge that it lies beyond."""
    low, high = axis.get_ylim()
    text, where, offset = f"base {level:.1f}", (1.0, level), 2
    if not axis.lines or low - 0.3 * (high - low) <= level <= high + 0.3 * (high - low):
        axis.axhline(level, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
        frame = axis.get_yaxis_transform()
    else:
        text += ", below this axis" if level < low else ", above this axis"
        where, offset = ((1.0, 0.0), 3) if level < low else ((1.0, 1.0), -9)
        frame = "axes fraction"
    axis.annotate(text, where, (0, offset), frame, "offset points", ha="right", fontsize=6, color=GREY)


def _key(method: str, colour: str, shape: str) -> Line2D:
    return Line2D(
        [], [], color=colour, marker=shape, linestyle="", markersize=5, markeredgewidth=0, label=method
    )
