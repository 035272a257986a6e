"""What every allocator must do, whatever its method, and what each adds."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_bench.allocation import ALLOCATORS
from cluster_bench.artifacts import Allocation, Clusters, Selection, Tokens, load, save
from cluster_bench.training.plan import build_plan

CASES = {
    "cluster_per_rank": {},
    "clusters_by_tokens": {"weighted": True, "slack": 0.0, "row_cost": 0.0, "square_cost": 0.0, "seed": 0},
    "shuffled": {"weighted": True, "seed": 0},
    "shuffled_by_tokens": {"weighted": True, "seed": 0},
    "shuffled_ranks": {},
    "sorted_by_length": {"weighted": True},
    "stratified_shuffled": {"seed": 0},
}


def allocator(kind, **fields):
    return ALLOCATORS[kind](**{**CASES[kind], **fields})


@st.composite
def problems(draw, repeated=False):
    """Clusters of any sizes, and a selection of at least one row of each: (clusters, selection, ranks)."""
    ranks = draw(st.integers(1, 4))
    sizes = draw(st.lists(st.integers(1, 30), min_size=ranks, max_size=ranks * 3))
    sizes = sizes[: len(sizes) // ranks * ranks]
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    labels = rng.permutation(np.repeat(np.arange(-1, len(sizes)), [2, *sizes]))
    keep = [
        rng.choice(members, rng.integers(1, len(members) + 1), replace=repeated)
        for members in (np.flatnonzero(labels == cluster) for cluster in range(len(sizes)))
    ]
    return clustered(labels, len(sizes)), Selection(np.sort(np.concatenate(keep)), uses_features=True), ranks


def clustered(labels, k):
    n = len(labels)
    return Clusters(
        labels, np.zeros((k, 2), np.float32), np.zeros(n, np.float32), np.zeros(n, np.bool_), seconds=0.0
    )


def tokens(clusters, lengths=None):
    n = len(clusters.labels)
    starts = np.concatenate([[0], np.cumsum(np.full(n, 2) if lengths is None else lengths)])
    return Tokens(np.zeros(starts[-1], dtype=np.int32), starts, starts[1:] - 1, np.arange(n), [])


def allocate(kind, clusters, selection, **fields):
    return allocator(kind, **fields)(tokens(clusters), clusters, selection)


def balanced_problem(sizes=(40, 30, 20, 10), quota=5):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    rows = np.concatenate([np.flatnonzero(labels == k)[:quota] for k in range(len(sizes))])
    return clustered(labels, len(sizes)), Selection(rows, uses_features=True)


def test_every_allocator_is_in_the_laws():
    assert set(CASES) == set(ALLOCATORS)


@pytest.mark.parametrize("kind", ALLOCATORS)
@given(problem=st.one_of(problems(), problems(repeated=True)))
@settings(max_examples=40, deadline=None)
def test_weights_restore_the_corpus_and_the_plan_is_the_same_twice(kind, problem):
    clusters, selection, ranks = problem
    once, twice = (allocate(kind, clusters, selection, ranks=ranks) for _ in range(2))
    np.testing.assert_array_equal(once.rows, selection.rows)
    np.testing.assert_array_equal(once.rank, twice.rank)
    assert once.weight.mean(dtype=np.float64) == pytest.approx(1, rel=1e-6)
    share = np.bincount(clusters.labels[once.rows], weights=once.weight) / len(once.rows)
    np.testing.assert_allclose(share, clusters.sizes / clusters.sizes.sum(), rtol=1e-6)
    assert set(once.rank) == set(range(ranks))
    assert once.ranks == ranks
    np.testing.assert_array_equal(once.cluster, clusters.labels[once.rows])


@pytest.mark.parametrize("kind", ["shuffled", "stratified_shuffled", "sorted_by_length"])
@given(problem=problems())
@settings(max_examples=40, deadline=None)
def test_dealt_rows_are_even_over_the_ranks(kind, problem):
    clusters, selection, ranks = problem
    count = np.bincount(allocate(kind, clusters, selection, ranks=ranks).rank, minlength=ranks)
    assert count.max() - count.min() <= 1


@given(problem=problems())
@settings(max_examples=40, deadline=None)
def test_a_cluster_has_one_rank_and_the_ranks_as_many_clusters_each(problem):
    clusters, selection, ranks = problem
    plan = allocate("cluster_per_rank", clusters, selection, ranks=ranks)
    pairs = set(zip(clusters.labels[plan.rows].tolist(), plan.rank.tolist(), strict=True))
    assert pairs == {(cluster, cluster % ranks) for cluster in range(len(clusters.sizes))}


@given(problem=problems())
@settings(max_examples=20, deadline=None)
def test_shuffled_ranks_is_cluster_per_rank_that_asks_to_be_mixed(problem):
    clusters, selection, ranks = problem
    own, mixed = (
        allocate(kind, clusters, selection, ranks=ranks) for kind in ("cluster_per_rank", "shuffled_ranks")
    )
    np.testing.assert_array_equal(own.rank, mixed.rank)
    assert mixed.mixed
    assert not own.mixed


@given(problem=problems(), seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_stratified_gives_every_rank_its_share_of_every_cluster(problem, seed):
    clusters, selection, ranks = problem
    plan = allocate("stratified_shuffled", clusters, selection, ranks=ranks, seed=seed)
    for cluster in range(len(clusters.sizes)):
        count = np.bincount(plan.rank[clusters.labels[plan.rows] == cluster], minlength=ranks)
        assert count.max() - count.min() <= 1


@given(problem=problems())
@settings(max_examples=20, deadline=None)
def test_the_controls_change_the_rank_alone(problem):
    clusters, selection, ranks = problem
    plans = [allocate(kind, clusters, selection, ranks=ranks) for kind in ALLOCATORS]
    for plan in plans[1:]:
        np.testing.assert_array_equal(plan.rows, plans[0].rows)
        np.testing.assert_array_equal(plan.weight, plans[0].weight)


def test_equal_numbers_of_each_cluster_give_the_weights_of_the_paper():
    clusters, selection = balanced_problem()
    plan = allocate("cluster_per_rank", clusters, selection, ranks=4)
    assert [plan.weight[plan.rank == k].tolist() for k in range(4)] == [
        [np.float32(4 * n / 100)] * 5 for n in (40, 30, 20, 10)
    ]


@pytest.mark.parametrize(
    "kind", ["cluster_per_rank", "clusters_by_tokens", "shuffled", "shuffled_by_tokens", "sorted_by_length"]
)
def test_weights_off_is_one_for_all_and_changes_nothing_else(kind):
    clusters, selection = balanced_problem()
    off, on = (allocate(kind, clusters, selection, ranks=4, weighted=w) for w in (False, True))
    assert (off.weight == 1).all()
    np.testing.assert_array_equal(off.rank, on.rank)


def test_rows_of_all_clusters_in_the_corpus_need_no_weights():
    clusters, _ = balanced_problem()
    plan = allocate("cluster_per_rank", clusters, Selection(np.arange(100), uses_features=False), ranks=2)
    np.testing.assert_allclose(plan.weight, 1, rtol=1e-6)


@pytest.mark.parametrize("kind", ["shuffled", "stratified_shuffled"])
def test_without_a_row_of_some_cluster_the_others_take_its_share_in_proportion(kind):
    clusters, selection = balanced_problem()
    some = Selection(selection.rows[clusters.labels[selection.rows] != 3], uses_features=False)
    plan = allocate(kind, clusters, some, ranks=2)
    expected = np.repeat([40, 30, 20], 5) / 90 * 3
    np.testing.assert_allclose(plan.weight, expected, rtol=1e-6)


@pytest.mark.parametrize("kind", ["shuffled", "stratified_shuffled"])
def test_another_seed_deals_other_rows(kind):
    clusters, selection = balanced_problem()
    dealt = {tuple(allocate(kind, clusters, selection, ranks=4, seed=seed).rank) for seed in range(10)}
    assert len(dealt) == 10


@given(problem=problems(), order=st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_the_order_of_the_rows_does_not_matter_to_cluster_per_rank(problem, order):
    clusters, selection, ranks = problem
    n = len(clusters.labels)
    moved = order.sample(range(n), n)  # new position -> old
    where = np.argsort(moved)
    again = allocate(
        "cluster_per_rank",
        clustered(clusters.labels[moved], len(clusters.sizes)),
        Selection(np.sort(where[selection.rows]), uses_features=True),
        ranks=ranks,
    )
    plan = allocate("cluster_per_rank", clusters, selection, ranks=ranks)
    before, after = (
        sorted(zip(rows.tolist(), p.rank.tolist(), p.weight.tolist(), strict=True))
        for rows, p in ((plan.rows, plan), (np.asarray(moved)[again.rows], again))
    )
    assert before == after


@pytest.mark.parametrize("kind", ALLOCATORS)
def test_more_ranks_than_rows_are_refused(kind):
    clusters, selection = balanced_problem(sizes=(3,) * 8, quota=1)
    few = Selection(selection.rows[:5], uses_features=True)
    with pytest.raises(ValueError, match=r"rank 5 of 8 gets none of the 5 selected rows; lower ranks"):
        allocate(kind, clusters, few, ranks=8)


def test_clusters_that_do_not_divide_over_the_ranks_are_refused():
    clusters, selection = balanced_problem()
    says = "allocation.ranks: 4 clusters do not divide over 3 ranks; make clusters.k a multiple of 3"
    with pytest.raises(ValueError, match=re.escape(says)):
        allocate("cluster_per_rank", clusters, selection, ranks=3)


def test_a_rank_whose_cluster_has_no_row_is_refused():
    clusters, selection = balanced_problem()
    some = Selection(selection.rows[clusters.labels[selection.rows] != 2], uses_features=False)
    with pytest.raises(ValueError, match="rank 2 of 4 gets none of the 15 selected rows"):
        allocate("cluster_per_rank", clusters, some, ranks=4)


@pytest.mark.parametrize("kind", ALLOCATORS)
def test_a_wrong_field_is_refused(kind):
    with pytest.raises(ValueError, match="ranks must be at least 1, got 0"):
        allocator(kind, ranks=0)
    with pytest.raises(ValueError, match="rank_count"):
        allocator(kind, rank_count=2)


@st.composite
def long_and_short(draw):
    """Clusters of very different lengths, all rows selected: (clusters, tokens per row, ranks)."""
    ranks = draw(st.integers(1, 5))
    sizes = draw(st.lists(st.integers(20, 40), min_size=1, max_size=12))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return clustered(labels, len(sizes)), rng.integers(1, rng.integers(2, 60, len(sizes))[labels] + 1), ranks


def by_tokens(clusters, lengths, ranks, slack):
    all_rows = Selection(np.arange(len(lengths)), uses_features=True)
    method = allocator("clusters_by_tokens", ranks=ranks, slack=slack)
    return method(tokens(clusters, lengths), clusters, all_rows)


@given(problem=long_and_short())
@settings(max_examples=25, deadline=None)
def test_whole_clusters_go_longest_first_to_the_rank_with_the_fewest_tokens(problem):
    """Against the textbook: sort, then always the least loaded machine."""
    clusters, lengths, ranks = problem
    loads = [0] * ranks
    for total in sorted(np.bincount(clusters.labels, weights=lengths), reverse=True):
        loads[loads.index(min(loads))] += int(total)
    if not all(loads):
        with pytest.raises(ValueError, match="gets none of the"):
            by_tokens(clusters, lengths, ranks, None)
        return
    plan = by_tokens(clusters, lengths, ranks, None)
    assert sorted(np.bincount(plan.rank, weights=lengths)) == sorted(loads)
    assert all(len(set(plan.rank[clusters.labels == c])) == 1 for c in range(len(clusters.sizes)))


@pytest.mark.parametrize("slack", [0.0, 0.1])
@given(problem=long_and_short())
@settings(max_examples=25, deadline=None)
def test_no_rank_has_more_than_its_share_and_few_clusters_are_cut(slack, problem):
    clusters, lengths, ranks = problem
    plan = by_tokens(clusters, lengths, ranks, slack)
    loads = np.bincount(plan.rank, weights=lengths, minlength=ranks)
    assert loads.max() <= (1 + slack) * lengths.sum() / ranks + lengths.max()
    counts = np.bincount(plan.rank, minlength=ranks)
    assert counts.min() >= len(lengths) // (2 * ranks)


@pytest.mark.parametrize(("k", "ranks"), [(32, 8), (8, 8), (3, 8), (1, 4)])
def test_any_number_of_clusters_fits_any_number_of_ranks(k, ranks):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(k), 960 // k)
    lengths = rng.integers(5, 50, len(labels)) + 3 * labels
    plan = by_tokens(clustered(labels, k), lengths, ranks, 0.01)
    loads = np.bincount(plan.rank, weights=lengths)
    assert loads.max() <= 1.02 * loads.mean()
    ranks_of = [len(set(plan.rank[labels == c])) for c in range(k)]
    assert sum(ranks_of) - k <= ranks, "more cuts than ranks"


@pytest.mark.parametrize("kind", ["clusters_by_tokens", "shuffled_by_tokens", "sorted_by_length"])
@pytest.mark.parametrize(("k", "ranks"), [(5, 3), (2, 4), (12, 4)])
def test_steps_average_to_the_clusters_shares_of_the_corpus(kind, k, ranks):
    """sum_c (n_c / N) (mean gradient of c's selected rows), however unequal clusters, rows and steps are."""
    rng = np.random.default_rng(k)
    labels = rng.permutation(np.repeat(np.arange(k), rng.integers(20, 90, k)))
    clusters, lengths = clustered(labels, k), rng.integers(2, 60, len(labels)) * (1 + labels)
    chosen = Selection(np.flatnonzero(rng.random(len(labels)) < 0.6), uses_features=True)
    plan = build_plan(
        allocator(kind, ranks=ranks)(tokens(clusters, lengths), clusters, chosen), 2, 6 * ranks, 0
    )
    gradients = rng.normal(size=(len(labels), 4))
    of_clusters = [gradients[chosen.rows[labels[chosen.rows] == c]].mean(axis=0) for c in range(k)]
    expected = sum((labels == c).mean() * of_clusters[c] for c in range(k))
    steps = []
    for step in range(plan.steps):
        rows, weights = zip(*(plan.batch(step, rank) for rank in range(ranks)), strict=True)
        total = sum(w @ gradients[r] for r, w in zip(rows, weights, strict=True))
        steps.append(total / sum(map(len, rows)))
    np.testing.assert_allclose(np.mean(steps, axis=0), expected, rtol=1e-5, atol=1e-8)


def test_a_rank_of_few_long_rows_takes_short_ones_too():
    labels = np.repeat(np.arange(4), [4, 40, 40, 40])
    lengths = np.repeat([400, 40, 40, 40], [4, 40, 40, 40])
    plan = by_tokens(clustered(labels, 4), lengths, 4, 0.0)
    assert np.bincount(plan.rank).min() >= 124 // 8
    loads = np.bincount(plan.rank, weights=lengths)
    assert loads.max() <= 1.1 * loads.mean()


def test_an_allocation_of_before_the_layouts_has_the_old_one(tmp_path):
    clusters, selection = balanced_problem()
    plan = allocate("cluster_per_rank", clusters, selection, ranks=4)
    save(plan, tmp_path)
    np.testing.assert_array_equal(load(Allocation, tmp_path).cluster, plan.cluster)
    (tmp_path / "cluster.npy").unlink()
    (tmp_path / "values.json").write_text('{"ranks": 4, "mixed": false}')
    old = load(Allocation, tmp_path)
    assert (old.layout, old.cluster, old.lengths) == ("shuffled", None, None)
    np.testing.assert_array_equal(old.rank, plan.rank)
    (tmp_path / "rank.npy").unlink()
    with pytest.raises(FileNotFoundError):
        load(Allocation, tmp_path)


def test_a_slack_below_zero_is_refused():
    with pytest.raises(ValueError, match=r"slack must not be below 0, got -0\.1"):
        allocator("clusters_by_tokens", ranks=2, slack=-0.1)
