"""The committed toy results are those of today's configuration, and keep what the world promises."""

import csv
import statistics
from collections import defaultdict
from pathlib import Path

import pytest

from cluster_bench.cells import cells

SCORES = Path(__file__).parents[1] / "results/toy/main/scores.csv"
DATASETS = ("toy_oss", "toy_evol", "toy_medinstruct")


@pytest.fixture(scope="module")
def averages() -> dict[tuple[str, str], list[float]]:
    """(dataset, method) -> the average over the domain's benchmarks, one for each seed."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    with SCORES.open() as file:
        for row in csv.DictReader(file):
            found[row["dataset"], row["method"]].append(float(row["average"]))
    return found


def test_they_are_the_runs_that_the_study_lays_out_today(tree):
    """Golden addresses: a change of any field, version or default orphans the committed results."""
    with SCORES.open() as file:
        committed = {row["address.scores"] for row in csv.DictReader(file)}
    assert committed == {cell.run.scores.key for cell in cells(tree("study=main")["study"], [])}


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_toy_world_tells_base_random_and_full_apart(averages, dataset):
    (base,) = averages[dataset, "base"]
    full, random = averages[dataset, "full"], averages[dataset, "random"]
    assert len(full) == len(random) == 3
    assert base <= 0.40
    assert statistics.fmean(full) >= 0.85
    gaps = [f - r for f, r in zip(full, random, strict=True)]
    assert statistics.fmean(gaps) >= 3 * statistics.stdev(gaps) / 3**0.5
