"""The committed toy results keep what the world promises: it can tell methods apart. They come from runs."""

import csv
import statistics
from collections import defaultdict
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_toy_world_tells_base_random_and_full_apart(averages, dataset):
    (base,) = averages[dataset, "base"]
    full, random = averages[dataset, "full"], averages[dataset, "random"]
    assert len(full) == len(random) == 3
    assert base <= 0.40
    assert statistics.fmean(full) >= 0.85
    gaps = [f - r for f, r in zip(full, random, strict=True)]
    assert statistics.fmean(gaps) >= 3 * statistics.stdev(gaps) / 3**0.5
