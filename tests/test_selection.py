"""What every selector must do, whatever its method, and what each adds."""

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_bench.artifacts import Clusters, Tokens
from cluster_bench.selection import SELECTORS

LIKE = {"ratio": 0.5, "keep": "far", "seed": 0}
CASES = {
    "all": {},
    "balanced": LIKE,
    "oversampled": {"seed": 0},
    "random": {"match": "rows", **LIKE},
}
RATIOS = st.one_of(st.sampled_from([0.5, 0.75, 1.0]), st.integers(20, 100).map(lambda percent: percent / 100))
SIZES = st.lists(st.integers(5, 40), min_size=1, max_size=6)
KEEPS = ["far", "near", "random", "half"]


def problem(sizes, seed=0, unclustered=0):
    """Rows of clusters of these sizes in a random order, of random lengths and distances."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(-1, len(sizes)), [unclustered, *sizes]))
    n = len(labels)
    starts = np.concatenate([[0], np.cumsum(rng.integers(2, 60, n))])
    tokens = Tokens(np.zeros(starts[-1], dtype=np.int32), starts, starts[:-1] + 1, np.arange(n), [])
    gap = np.where(labels < 0, 0, rng.permutation(n) + 1.0).astype(np.float32)
    centers = np.zeros((len(sizes), 2), dtype=np.float32)
    return tokens, Clusters(labels, centers, gap, np.zeros(n, dtype=np.bool_), 0.0)


def selector(kind, **fields):
    return SELECTORS[kind](**{**CASES[kind], **fields})


def per_cluster(clusters, rows):
    return np.bincount(clusters.labels[rows], minlength=len(clusters.sizes))


def test_every_selector_is_in_the_laws():
    assert set(CASES) == set(SELECTORS)


@pytest.mark.parametrize("kind", SELECTORS)
@given(sizes=SIZES, seed=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_rows_are_ascending_in_clusters_and_the_same_twice(kind, sizes, seed):
    tokens, clusters = problem(sizes, seed, unclustered=3)
    selection = selector(kind)(tokens, clusters)
    steps = np.diff(selection.rows)
    assert (steps >= 0).all() if kind == "oversampled" else (steps > 0).all()
    assert (clusters.labels[selection.rows] >= 0).all()
    np.testing.assert_array_equal(selection.rows, selector(kind)(tokens, clusters).rows)
    assert selection.uses_features == (kind in ("balanced", "oversampled"))


@pytest.mark.parametrize("kind", SELECTORS)
def test_a_field_too_many_is_refused(kind):
    with pytest.raises(ValueError, match="ratoi"):
        selector(kind, ratoi=0.5)


def test_all_keeps_every_clustered_row():
    tokens, clusters = problem([7, 5], unclustered=2)
    assert selector("all")(tokens, clusters).rows.tolist() == np.flatnonzero(clusters.labels >= 0).tolist()


@pytest.mark.parametrize("keep", KEEPS)
@given(sizes=SIZES, ratio=RATIOS, seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_balanced_keeps_the_floor_of_the_smallest_cluster_of_each(keep, sizes, ratio, seed):
    tokens, clusters = problem(sizes, seed)
    rows = selector("balanced", keep=keep, ratio=ratio)(tokens, clusters).rows
    assert per_cluster(clusters, rows).tolist() == [round(ratio * 100) * min(sizes) // 100] * len(sizes)


@given(sizes=SIZES, ratio=RATIOS, seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_far_and_near_take_the_two_ends_and_half_takes_both(sizes, ratio, seed):
    tokens, clusters = problem(sizes, seed)
    kept = {keep: selector("balanced", keep=keep, ratio=ratio)(tokens, clusters).rows for keep in KEEPS}
    for cluster in range(len(sizes)):
        members = np.flatnonzero(clusters.labels == cluster)
        ordered = members[np.argsort(clusters.distances[members])]
        quota = math.floor(round(ratio * min(sizes), 6))
        core = quota // 2
        here = {keep: set(rows) & set(members) for keep, rows in kept.items()}
        assert here["near"] == set(ordered[:quota])
        assert here["far"] == set(ordered[len(members) - quota :])
        assert here["half"] == {*ordered[:core], *ordered[len(members) - (quota - core) :]}


@pytest.mark.parametrize("keep", ["far", "near"])
def test_the_earlier_of_two_equally_far_rows_goes_first(keep):
    tokens, clusters = problem([10])
    clusters.distances[:] = 1
    assert selector("balanced", keep=keep, ratio=0.3)(tokens, clusters).rows.tolist() == [0, 1, 2]


@pytest.mark.parametrize("keep", ["far", "near", "half"])
@given(seed=st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_the_order_of_the_rows_does_not_matter(keep, seed):
    tokens, clusters = problem([20, 12, 8], seed)
    order = np.random.default_rng(seed + 1).permutation(40)
    moved = Clusters(
        clusters.labels[order], clusters.centers, clusters.distances[order], clusters.overflow[order], 0.0
    )
    rows, again = (selector("balanced", keep=keep)(tokens, c).rows for c in (clusters, moved))
    assert set(order[again]) == set(rows)


def test_random_keeps_change_with_the_seed_and_reach_every_row():
    tokens, clusters = problem([10, 10])
    kept = [selector("balanced", keep="random", seed=seed)(tokens, clusters).rows for seed in range(40)]
    assert len({tuple(rows) for rows in kept}) > 30
    assert set(np.concatenate(kept)) == set(range(20))


def test_a_decimal_ratio_is_taken_as_written():
    """0.29 * 100 is 28.999999999999996."""
    tokens, clusters = problem([100, 120])
    assert len(selector("balanced", ratio=0.29)(tokens, clusters).rows) == 58


@pytest.mark.parametrize("kind", ["balanced", "random"])
@pytest.mark.parametrize("ratio", [0, -0.5, 1.01, math.nan])
def test_a_ratio_that_is_none_is_refused(kind, ratio):
    with pytest.raises(ValueError, match=re.escape(f"ratio must be in (0, 1], got {float(ratio)}")):
        selector(kind, ratio=ratio)


@pytest.mark.parametrize("kind", ["balanced", "random"])
def test_a_quota_of_no_row_is_refused_with_its_numbers(kind):
    says = "selection.ratio: 0.1 of the smallest cluster (1, of 6 rows) is less than 1 row; raise ratio"
    with pytest.raises(ValueError, match=re.escape(says)):
        selector(kind, ratio=0.1)(*problem([30, 6, 20]))


@given(sizes=SIZES, ratio=RATIOS, keep=st.sampled_from(KEEPS), seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_random_matches_its_model_in_rows_or_in_tokens(sizes, ratio, keep, seed):
    tokens, clusters = problem(sizes, seed, unclustered=2)
    like = {"ratio": ratio, "keep": keep, "seed": seed}
    model = selector("balanced", **like)(tokens, clusters).rows
    by_rows, by_tokens = (
        selector("random", match=match, **like)(tokens, clusters).rows for match in ("rows", "tokens")
    )
    assert len(by_rows) == len(model)
    assert set(by_rows) <= set(by_tokens) or set(by_tokens) <= set(by_rows)  # one random order
    off = abs(tokens.lengths[by_tokens].sum() - tokens.lengths[model].sum())
    assert off <= tokens.lengths.max() / 2  # one row more or less is never nearer than half a row
    assert len(by_tokens)


def test_random_regards_no_cluster():
    """Over many seeds every row is kept equally often, of small clusters and of large."""
    tokens, clusters = problem([40, 10])
    kept = np.zeros(50)
    for seed in range(600):
        kept[selector("random", seed=seed)(tokens, clusters).rows] += 1
    assert kept.sum() == 600 * 10
    assert np.abs(kept / 600 - 0.2).max() < 5 * math.sqrt(0.2 * 0.8 / 600)


@given(sizes=SIZES, seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_oversampled_brings_every_cluster_to_the_largest_and_no_row_far_ahead(sizes, seed):
    tokens, clusters = problem(sizes, seed, unclustered=1)
    rows = selector("oversampled", seed=seed)(tokens, clusters).rows
    assert per_cluster(clusters, rows).tolist() == [max(sizes)] * len(sizes)
    times = np.bincount(rows, minlength=len(clusters.labels))
    for cluster, size in enumerate(sizes):
        here = times[clusters.labels == cluster]
        assert here.min() == max(sizes) // size
        assert here.max() <= here.min() + 1


def test_oversampled_refuses_an_empty_cluster():
    tokens, clusters = problem([5, 0, 5])
    with pytest.raises(ValueError, match="cluster 1 is empty and cannot be repeated"):
        selector("oversampled")(tokens, clusters)
