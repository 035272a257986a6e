"""What every clusterer must do, and the rule of the size cap against its slow, literal version."""

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_bench.artifacts import Features
from cluster_bench.clusters import CLUSTERERS
from cluster_bench.clusters.cap import assign
from cluster_bench.clusters.nearest import BLOCK, nearest

NEEDS = {
    "capped_kmeans": {"k": 3, "alpha": 1.5, "restarts": 2, "iterations": 50, "seed": 42, "min_share": 0.05},
    "one": {},
}


def clusterer(kind="capped_kmeans", **fields):
    return CLUSTERERS[kind](**{**NEEDS[kind], **fields})


def unit(values):
    """Features of unit length; rows of zeros stay zero."""
    norms = np.linalg.norm(values, axis=1)
    values = values / np.where(norms, norms, 1)[:, None]
    return Features(values.astype(np.float32), norms.astype(np.float32), 0.0)


def topics(sizes, seed=0, spread=0.2, dim=5):
    """Rows around as many orthogonal directions as there are sizes, in a random order."""
    rng = np.random.default_rng(seed)
    topic = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return unit(np.eye(dim)[topic] + rng.normal(0, spread, (len(topic), dim))), topic


def slow_cap(values, centers, cap):
    """The rule as it reads: walk all pairs from the closest to the farthest; then the left-overs."""
    gaps = nearest(values, centers, len(centers))
    gap = np.zeros((len(values), len(centers)), dtype=np.float32)
    np.put_along_axis(gap, *gaps, axis=1)
    pairs = [
        (gap[row, center], row, center)
        for row in range(len(values))
        for center in sorted(range(len(centers)), key=lambda c: (gap[row, c], c))[:8]
    ]
    labels, room = np.full(len(values), -1), [cap] * len(centers)
    for _, row, center in sorted(pairs):
        if labels[row] < 0 and room[center]:
            labels[row] = center
            room[center] -= 1
    for row in np.flatnonzero(labels < 0):
        labels[row] = min((c for c in range(len(centers)) if room[c]), key=lambda c: (gap[row, c], c))
        room[labels[row]] -= 1
    return labels, gap


@pytest.mark.parametrize("kind", CLUSTERERS)
def test_every_row_with_a_feature_is_in_one_cluster_and_no_other_row(kind):
    features, _ = topics([40, 30, 20])
    features.values[[3, 50]], features.norms[[3, 50]] = 0, 0
    clusters = clusterer(kind)(features)
    out = clusters.labels < 0
    assert np.flatnonzero(out).tolist() == [3, 50]
    assert clusters.sizes.sum() == 88
    assert clusters.labels.max() < len(clusters.centers)
    assert not clusters.overflow[out].any()
    assert not clusters.distances[out].any()
    gap = ((features.values - clusters.centers[clusters.labels]) ** 2).sum(1)
    np.testing.assert_allclose(clusters.distances[~out], gap[~out], atol=1e-5)
    assert clusters.seconds > 0


@pytest.mark.parametrize("kind", CLUSTERERS)
def test_same_features_same_clusters(kind, tmp_path):
    features, _ = topics([40, 30, 20])
    np.save(tmp_path / "values.npy", features.values)
    mapped = Features(
        np.load(tmp_path / "values.npy", mmap_mode="r"), features.norms, 0.0
    )  # as the store gives it
    once, twice = clusterer(kind)(features), clusterer(kind)(mapped)
    for field in ("labels", "centers", "distances", "overflow"):
        np.testing.assert_array_equal(getattr(once, field), getattr(twice, field))


@pytest.mark.parametrize("kind", CLUSTERERS)
def test_no_row_with_a_feature_is_an_error(kind):
    with pytest.raises(ValueError, match=r"rows? .*feature"):
        clusterer(kind)(unit(np.zeros((4, 3))))


def test_finds_separate_topics():
    features, topic = topics([30, 30, 30])
    labels = clusterer()(features).labels
    assert len(set(zip(topic, labels, strict=True))) == 3


@given(st.integers(0, 10**6), st.sampled_from([1.0, 1.1, 1.5, 2.0]), st.integers(2, 5))
@settings(max_examples=25, deadline=None)
def test_the_cap_is_never_exceeded(seed, alpha, k):
    features, _ = topics([70, 20, 10], seed, spread=0.5)
    clusters = clusterer(k=k, alpha=alpha, restarts=1, iterations=10, min_share=0)(features)
    free = clusterer(k=k, alpha=None, restarts=1, iterations=10, min_share=0)(features)
    assert clusters.sizes.max() <= math.ceil(round(alpha * 100 / k, 6))
    np.testing.assert_array_equal(clusters.centers, free.centers)  # not estimated again
    np.testing.assert_array_equal(clusters.overflow, clusters.labels != free.labels)
    assert not free.overflow.any()
    if free.sizes.max() <= alpha * 100 / k:
        np.testing.assert_array_equal(clusters.labels, free.labels)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_the_cap_is_the_walk_over_all_pairs(data):
    """Small whole coordinates make many ties; more than 8 centers make left-overs."""
    n, k = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 12))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    values = rng.integers(0, data.draw(st.sampled_from([2, 4, 1000])), (n, 2)).astype(np.float32)
    centers = rng.integers(0, 4, (k, 2)).astype(np.float32)
    cap = data.draw(st.integers(-(-n // k), n))
    labels, distances, overflow = assign(values, centers, cap)
    expected, gap = slow_cap(values, centers, cap)
    np.testing.assert_array_equal(labels, expected)
    np.testing.assert_array_equal(distances, gap[np.arange(n), expected])
    np.testing.assert_array_equal(overflow, expected != gap.argmin(1))


def test_rows_left_over_by_the_eight_nearest_take_what_is_nearest_with_room():
    centers = np.arange(10, dtype=np.float32)[:, None]
    labels, _, overflow = assign(np.zeros((10, 1), dtype=np.float32), centers, 1)
    assert labels.tolist() == list(range(10))
    assert overflow.tolist() == [False] + [True] * 9


@given(st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_the_order_of_the_rows_does_not_matter_to_the_cap(seed):
    rng = np.random.default_rng(seed)
    values, centers = rng.normal(size=(60, 3)).astype(np.float32), rng.normal(size=(4, 3)).astype(np.float32)
    order = rng.permutation(60)
    labels, _, _ = assign(values, centers, 20)
    np.testing.assert_array_equal(assign(values[order], centers, 20)[0], labels[order])


def test_distances_do_not_depend_on_the_block():
    rng = np.random.default_rng(0)
    values, centers = (
        rng.normal(size=(BLOCK + 7, 6)).astype(np.float32),
        rng.normal(size=(5, 6)).astype(np.float32),
    )
    near, gaps = nearest(values, centers, 5)
    exact = ((values[:, None].astype(np.float64) - centers) ** 2).sum(-1)
    np.testing.assert_allclose(gaps, np.sort(exact, axis=1), rtol=1e-5)
    np.testing.assert_array_equal(near, np.argsort(exact, axis=1))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"k": 0}, "k must be at least 1, got 0"),
        ({"restarts": 0}, "restarts must be at least 1, got 0"),
        ({"iterations": -1}, "iterations must be at least 1, got -1"),
        ({"alpha": 0.9}, "alpha must be at least 1, or not every row has a cluster, got 0.9"),
        ({"alpha": math.inf}, "alpha must be at least 1"),
        ({"min_share": 1.0}, "min_share must be in [0, 1), got 1.0"),
        ({"min_shar": 0.1}, "min_shar"),
    ],
)
def test_a_wrong_field_is_refused_with_its_number(fields, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        clusterer(**fields)


def test_more_clusters_than_rows_are_refused():
    features, _ = topics([3, 3])
    features.norms[0] = 0
    with pytest.raises(
        ValueError, match=re.escape("clusters.k: 6 clusters for 5 rows with a feature (of 6); lower k")
    ):
        clusterer(k=6)(features)


def test_a_cluster_below_the_floor_is_named_with_the_way_out():
    features, topic = topics([60, 38, 2], spread=0.05)
    says = (
        r"cluster (\d) has 2 rows, below the floor of 3.3 = min_share 0.1 x 100 rows / 3 clusters;"
        r" lower min_share or k"
    )
    with pytest.raises(ValueError, match=says) as caught:
        clusterer(min_share=0.1, alpha=None)(features)
    named = int(re.search(says, str(caught.value))[1])
    assert (clusterer(min_share=0, alpha=None)(features).labels[topic == 2] == named).all()


def test_fewer_distinct_rows_than_clusters_are_refused_without_a_floor():
    features = unit(np.repeat(np.eye(2), 10, axis=0))
    with pytest.raises(ValueError, match=r"is empty, as 20 rows have too few distinct features; lower k"):
        clusterer(min_share=0, alpha=None)(features)


def test_a_norm_that_is_no_number_is_refused():
    features, _ = topics([10, 10])
    features.norms[7] = np.nan
    with pytest.raises(ValueError, match="the norm of row 7 is nan"):
        clusterer(k=2)(features)
