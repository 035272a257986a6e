"""The plan's laws: every row once an epoch, equal steps, whole clusters where they belong."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_bench.artifacts import Allocation
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


def test_learning_rate_rises_then_falls():
    linear = [learning_rate(s, 100, 2.0, 0.1, "linear") for s in range(100)]
    assert linear[9] == linear[10] == 2.0
    assert linear[0] == pytest.approx(0.2)
    assert linear[99] == pytest.approx(2 / 90)
    cosine = [learning_rate(s, 100, 2.0, 10.0, "cosine") for s in range(100)]
    assert cosine[55] == pytest.approx(1.0)
    assert min(cosine) > 0
