"""The plan's laws: every row once an epoch, equal steps, whole clusters where they belong."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_bench.artifacts import Allocation
from cluster_bench.training.layouts import LAYOUTS
from cluster_bench.training.plan import Plan, build_plan
from cluster_bench.training.schedule import learning_rate


def allocation(counts: list[int], mixed: bool = False) -> Allocation:
    rank = np.repeat(np.arange(len(counts)), counts)
    m = len(rank)
    weight = np.linspace(0.5, 1.5, m).astype(np.float32)
    return Allocation(np.arange(m) * 3, rank, weight, len(counts), mixed)


counts = st.lists(st.integers(1, 30), min_size=1, max_size=5)


@given(counts=counts, epochs=st.integers(1, 3), per_rank=st.integers(1, 8), seed=st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_each_epoch_is_a_permutation_and_ranks_keep_their_own(counts, epochs, per_rank, seed):
    given_rows = allocation(counts)
    plan = build_plan(given_rows, epochs, per_rank * len(counts), seed)
    assert plan.steps % epochs == 0
    for rank in range(len(counts)):
        own = given_rows.rows[given_rows.rank == rank]
        batches = [plan.batch(step, rank)[0] for step in range(plan.steps)]
        assert max(map(len, batches)) <= per_rank
        each = plan.steps // epochs
        for epoch in range(epochs):
            seen = np.concatenate(batches[epoch * each : (epoch + 1) * each])
            assert sorted(seen.tolist()) == own.tolist()
    weight = dict(zip(given_rows.rows.tolist(), given_rows.weight.tolist(), strict=True))
    assert [weight[row] for row in plan.rows.tolist()] == plan.weights.tolist()


@given(counts=st.lists(st.just(12), min_size=2, max_size=4), seed=st.integers(0, 9))
@settings(max_examples=20, deadline=None)
def test_mixed_has_the_same_global_batches_on_other_ranks(counts, seed):
    own = build_plan(allocation(counts), 2, 4 * len(counts), seed)
    mixed = build_plan(allocation(counts, mixed=True), 2, 4 * len(counts), seed)
    assert own.hash != mixed.hash
    for step in range(own.steps):
        assert sorted(own.step_rows(step)) == sorted(mixed.step_rows(step))
        sizes = [len(own.batch(step, rank)[0]) for rank in range(own.ranks)]
        assert sizes == [len(mixed.batch(step, rank)[0]) for rank in range(own.ranks)]


def test_equal_clusters_stand_in_every_batch_in_equal_numbers():
    plan = build_plan(allocation([50, 50, 50, 50]), 1, 32, 0)
    for step in range(plan.steps):
        assert len({len(plan.batch(step, rank)[0]) for rank in range(4)}) == 1


def test_a_plan_is_the_same_twice_and_survives_the_disk(tmp_path):
    plan = build_plan(allocation([7, 9]), 2, 4, 5)
    assert plan.hash == build_plan(allocation([7, 9]), 2, 4, 5).hash
    assert plan.hash != build_plan(allocation([7, 9]), 2, 4, 6).hash
    plan.save(tmp_path / "plan.npz")
    assert Plan.load(tmp_path / "plan.npz").hash == plan.hash


def test_a_rank_without_rows_is_refused():
    empty = Allocation(np.array([1]), np.array([0]), np.ones(1, np.float32), 2)
    with pytest.raises(ValueError, match="rank 1 of 2 has no rows out of 1"):
        build_plan(empty, 1, 2, 0)


def test_the_plans_of_committed_results_stay_what_they_are():
    """Golden hashes of the first layout: a change would orphan every training that is there."""
    hashes = [
        build_plan(allocation(counts, mixed), 3, 4 * len(counts), 7).hash
        for counts, mixed in ([[97] * 4, False], [[97] * 4, True], [[5, 9, 7], True], [[30, 1], False])
    ]
    assert hashes == GOLDEN


GOLDEN = ["a6768c073ca6eea8", "9bfc9d9dc7621e60", "b6aed27d930d6edc", "b79b2582255e2005"]

BY_TOKENS = [name for name in LAYOUTS if name != "shuffled"]


def by_tokens(layout: str, counts: list[int], seed: int, spread: int = 40) -> Allocation:
    """Ranks of unequal rows, rows of unequal tokens, weights and clusters (two a rank)."""
    given_rows = allocation(counts)
    rng = np.random.default_rng(seed)
    m = len(given_rows.rows)
    weight = rng.uniform(0.2, 3, m)
    return dataclasses.replace(
        given_rows,
        weight=(weight / weight.mean()).astype(np.float32),
        layout=layout,
        cluster=2 * given_rows.rank + rng.integers(0, 2, m),
        lengths=rng.integers(1, spread, m),
    )


@pytest.mark.parametrize("layout", BY_TOKENS)
@given(counts=st.lists(st.integers(8, 20), min_size=1, max_size=3), seed=st.integers(0, 9))
@settings(max_examples=6, deadline=None)
def test_layouts_by_tokens_step_equally_and_weigh_exactly(layout, counts, seed):
    """Every row once an epoch, no empty batch, and the steps' gradients average to the formula's."""
    ranks = len(counts)
    given_rows = by_tokens(layout, counts, seed)
    plan = build_plan(given_rows, 2, 4 * ranks, seed)
    assert plan.hash == build_plan(given_rows, 2, 4 * ranks, seed).hash
    each = -(-sum(counts) // (4 * ranks))
    assert plan.steps == 2 * each
    gradients = np.random.default_rng(1).normal(size=(3 * sum(counts), 5))  # of each row's own loss
    for epoch in range(2):
        steps = range(epoch * each, (epoch + 1) * each)
        seen: dict[int, list[int]] = {rank: [] for rank in range(ranks)}
        total = np.zeros(5)
        for step in steps:
            for rank in range(ranks):
                rows, weights = plan.batch(step, rank)
                assert len(rows)
                seen[rank] += rows.tolist()
                total += weights @ gradients[rows] / len(plan.step_rows(step))
        for rank in range(ranks):
            assert sorted(seen[rank]) == given_rows.rows[given_rows.rank == rank].tolist()
        expected = given_rows.weight.astype(np.float64) @ gradients[given_rows.rows] / sum(counts)
        np.testing.assert_allclose(total / each, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("layout", "tries"), [("sorted", 300), ("balanced", 2), ("stratified", 2)])
def test_a_row_weighs_the_same_at_any_step_and_stands_at_each_as_often(layout, tries):
    """So the expected gradient of every single step is the formula's, for long rows as for short ones."""
    given_rows = by_tokens(layout, [12, 14], seed=0)
    longest = given_rows.rows[np.argmax(given_rows.lengths)]
    at = np.zeros(4)
    for seed in range(tries):
        plan = build_plan(given_rows, 1, 8, seed)
        counts = np.diff(plan.offsets[:: plan.ranks])
        share = plan.weights / np.repeat(counts, counts)
        weight = given_rows.weight[plan.rows // 3].astype(np.float64)
        np.testing.assert_allclose(share, weight * 4 / 26, rtol=1e-9)
        at[np.searchsorted(np.cumsum(counts), np.flatnonzero(plan.rows == longest)[0], "right")] += 1
    assert ((at - tries / 4) ** 2 / (tries / 4)).sum() < 16.3  # chi-square, 3 degrees of freedom, p = 0.001


@pytest.mark.parametrize("layout", BY_TOKENS)
@pytest.mark.parametrize(("ranks", "per_rank"), [(4, 4), (8, 4)])
def test_ranks_of_equal_tokens_hardly_wait(layout, ranks, per_rank):
    given_rows = by_tokens(layout, [64] * ranks, seed=0, spread=2)
    lengths = np.random.default_rng(0).integers(5, 60, 64)
    given_rows = dataclasses.replace(given_rows, lengths=np.tile(lengths, ranks))
    idle = _idle(build_plan(given_rows, 1, per_rank * ranks, 0), given_rows)
    random = _idle(
        build_plan(dataclasses.replace(given_rows, layout="shuffled"), 1, per_rank * ranks, 0), given_rows
    )
    assert idle < 0.03 < 0.1 < random


def _idle(plan: Plan, given_rows: Allocation) -> float:
    assert given_rows.lengths is not None
    cost = np.add.reduceat(given_rows.lengths[plan.rows // 3], plan.offsets[:-1]).reshape(-1, plan.ranks)
    return 1 - float(cost.mean(axis=1).sum() / cost.max(axis=1).sum())


def test_sorted_batches_hold_rows_of_like_length_in_random_order():
    given_rows = by_tokens("sorted", [32, 32], seed=0)
    assert given_rows.lengths is not None
    plan = build_plan(given_rows, 1, 16, 0)
    batches = [given_rows.lengths[plan.step_rows(step) // 3] for step in range(plan.steps)]
    ordered = sorted(batches, key=min)
    assert [b.tolist() for b in batches] != [b.tolist() for b in ordered]
    inside = sum(int(np.ptp(batch)) for batch in batches)
    assert inside < 2 * np.ptp(given_rows.lengths)


def test_stratified_steps_see_every_cluster_in_like_numbers():
    """Where rows are of one length there is nothing to exchange, so the shares are as dealt."""
    given_rows = by_tokens("stratified", [64, 64], seed=0, spread=2)
    assert given_rows.cluster is not None
    plan = build_plan(given_rows, 1, 32, 0)
    counts = np.array(
        [
            np.bincount(given_rows.cluster[plan.step_rows(step) // 3], minlength=4)
            for step in range(plan.steps)
        ]
    )
    assert (np.ptp(counts, axis=0) <= 2).all()


@pytest.mark.parametrize(
    ("changes", "global_batch", "says"),
    [
        ({}, 15, "global_batch 15 does not divide over 2 ranks"),
        ({}, 0, "global_batch 0 does not divide over 2 ranks"),
        (
            {"layout": "balanced"},
            2,
            "rank 1 of 2 has 3 rows for 12 steps; raise training.global_batch above 2",
        ),
        (
            {"layout": "alphabetical"},
            4,
            "'alphabetical' is not one of shuffled, sorted, balanced, stratified",
        ),
        ({"layout": "sorted", "lengths": None}, 8, "layout 'sorted' needs the tokens of every row"),
        ({"layout": "stratified", "cluster": None}, 8, "layout 'stratified' needs the cluster of every row"),
    ],
)
def test_what_cannot_be_laid_out_is_refused_with_the_numbers(changes, global_batch, says):
    given_rows = dataclasses.replace(by_tokens("shuffled", [21, 3], seed=0), **changes)
    with pytest.raises(ValueError, match=says):
        build_plan(given_rows, 1, global_batch, 0)


@pytest.mark.parametrize(
    ("offsets", "says"),
    [([0, 2, 4, 6], "3 batches are not equal steps for 2 ranks"), ([0, 2, 5], "do not cut its 6 exposures")],
)
def test_a_plan_without_equal_steps_cannot_be_made(offsets, says):
    with pytest.raises(ValueError, match=says):
        Plan(np.arange(6), np.ones(6), np.array(offsets), 2)


def test_learning_rate_rises_then_falls():
    linear = [learning_rate(s, 100, 2.0, 0.1, "linear") for s in range(100)]
    assert linear[9] == linear[10] == 2.0
    assert linear[0] == pytest.approx(0.2)
    assert linear[99] == pytest.approx(2 / 90)
    cosine = [learning_rate(s, 100, 2.0, 10.0, "cosine") for s in range(100)]
    assert cosine[55] == pytest.approx(1.0)
    assert min(cosine) > 0
