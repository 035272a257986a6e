"""What the runs of a line say together.

Two errors are kept apart: over seeds (how much the outcome moves when the run is repeated) and over items
(how much one run's score moves with the items it is asked).
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from cluster_bench.record import Record
from cluster_bench.report.lines import Line, score, scores_address


@dataclass(frozen=True)
class Estimate:
    """A mean in [0, 1] (or a difference in [-1, 1]) and its standard error, over seeds or over items."""

    mean: float
    error: float | None
    over_seeds: bool  # else the error is one run's, over its items
    runs: int


def average(record: Record, names: Sequence[str]) -> float | None:
    """The mean over the domain's benchmarks; a run without one of them has none."""
    values = [value for value in (score(record, name) for name in names) if value is not None]
    return statistics.fmean(values) if values and len(values) == len(names) else None


def estimate(line: Line, names: Sequence[str]) -> Estimate | None:
    """Mean over the line's runs of their average over `names`; None if a run lacks one.

    With two or more runs the error is over seeds. With one it is over items; for an average over several
    benchmarks it is then the mean of theirs, an upper bound, as benchmarks may share items.
    """
    values = [average(run, names) for run in line.runs]
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    if len(known) > 1:
        return Estimate(statistics.fmean(known), _standard_error(known), True, len(known))
    errors = [line.runs[0].stderr.get(name, math.nan) for name in names]
    error = statistics.fmean(errors)
    return Estimate(known[0], error if math.isfinite(error) else None, False, 1)


def paired(line: Line, reference: Line, names: Sequence[str]) -> Estimate | None:
    """Mean over the seeds both have of the difference of their averages; None without a common seed."""
    others = {record.seed: record for record in reference.records}
    pairs = [(record, others[record.seed]) for record in line.records if record.seed in others]
    distinct = {tuple(scores_address(one) or str(one.seed) for one in pair): pair for pair in pairs}
    averages = [(average(a, names), average(b, names)) for a, b in distinct.values()]
    values = [a - b for a, b in averages if a is not None and b is not None]
    if not values:
        return None
    error = _standard_error(values) if len(values) > 1 else None
    return Estimate(statistics.fmean(values), error, True, len(values))


def _standard_error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values))
