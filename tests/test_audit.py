"""The audit counts what the plan does, against counting one exposure at a time."""

import dataclasses
import json
import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_bench.artifacts import Allocation, Tokens
from cluster_bench.training.audit import audit, idle
from cluster_bench.training.plan import build_plan


def problem(counts: list[int], seed: int) -> tuple[Allocation, Tokens]:
    """Ranks of the given rows, every second usable row selected, clusters at random."""
    rng = np.random.default_rng(seed)
    m = sum(counts)
    starts = np.concatenate([[0], np.cumsum(rng.integers(2, 50, 2 * m))])
    tokens = Tokens(np.zeros(starts[-1], np.int32), starts, starts[1:] - 1, np.arange(2 * m), [])
    rank = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    allocation = Allocation(
        2 * np.arange(m), rank, np.ones(m, np.float32), len(counts), cluster=rng.integers(0, 3, m)
    )
    return allocation, tokens


counts = st.lists(st.integers(1, 20), min_size=1, max_size=4)


@given(counts=counts, micro_batch=st.none() | st.integers(1, 5), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_it_counts_what_a_loop_over_the_plan_counts(counts, micro_batch, seed):
    allocation, tokens = problem(counts, seed)
    plan = build_plan(allocation, 2, 3 * len(counts), seed)
    cost = np.random.default_rng(seed).uniform(1, 2, len(tokens))
    found = audit(plan, allocation, tokens, micro_batch, cost)
    clusters, waited, took, padded_waited, padded_took, padding, slots, empty = [0] * 3, 0, 0, 0, 0, 0, 0, 0
    shown: dict[int, int] = {}
    batches, of_ranks = [], [0] * len(counts)
    for step in range(plan.steps):
        busy, padded = [], []
        for rank in range(plan.ranks):
            rows = plan.batch(step, rank)[0].tolist()
            empty += not rows
            here = 0
            size = micro_batch or 1
            for start in range(0, len(rows), size):
                part = [int(tokens.lengths[row]) for row in rows[start : start + size]]
                here += len(part) * max(part)
                padding += len(part) * max(part) - sum(part)
            for row in rows:
                shown[row] = shown.get(row, 0) + 1
                clusters[int(allocation.cluster[row // 2])] += 1
            batches.append(sum(int(tokens.lengths[row]) for row in rows))
            of_ranks[rank] += batches[-1]
            slots += here
            busy.append(sum(float(cost[row]) for row in rows))
            padded.append(here)
        waited += sum(max(busy) - b for b in busy)
        took += max(busy) * plan.ranks
        padded_waited += sum(max(padded) - p for p in padded)
        padded_took += max(padded) * plan.ranks
    assert (found.steps, found.empty_batches, found.padding) == (plan.steps, empty, padding)
    assert found.padding_share == pytest.approx(padding / slots)
    assert found.idle == pytest.approx(waited / took)
    assert found.idle_padded == pytest.approx(padded_waited / padded_took)
    assert set(shown.values()) == {2}
    assert found.exposures_of_rows == {"min": 2, "mean": 2.0, "max": 2, "histogram": {"2": sum(counts)}}
    assert found.exposures_of_clusters == clusters[: len(found.exposures_of_clusters)]
    assert sum(found.exposures_of_clusters) == 2 * sum(counts)
    assert found.exposures_of_ranks == [2 * count for count in counts]
    assert found.tokens_of_ranks == of_ranks
    spread = found.tokens_of_batches
    assert (spread["min"], spread["max"]) == (min(batches), max(batches))
    assert spread["mean"] == pytest.approx(np.mean(batches))
    assert sum(spread["histogram"].values()) == len(batches)


def test_a_row_that_is_never_shown_and_one_that_is_repeated_are_seen():
    allocation, tokens = problem([6, 6], 0)
    plan = build_plan(dataclasses.replace(allocation, rows=np.repeat(allocation.rows[:6], 2)), 1, 4, 0)
    found = audit(plan, allocation, tokens, None)
    assert found.exposures_of_rows["histogram"] == {"0": 6, "2": 6}


def test_even_ranks_do_not_wait():
    allocation, tokens = problem([6, 6], 0)
    assert idle(build_plan(allocation, 1, 4, 0), np.ones(len(tokens))) == 0.0


def test_it_is_kept_as_the_same_bytes_and_said_in_a_few_lines(tmp_path, caplog):
    allocation, tokens = problem([20, 12], 0)
    plan = build_plan(allocation, 2, 4, 0)
    with caplog.at_level(logging.INFO):
        audit(plan, allocation, tokens, 2).keep(tmp_path)
    bytes_of_first = (tmp_path / "audit.json").read_bytes()
    audit(build_plan(allocation, 2, 4, 0), allocation, tokens, 2).keep(tmp_path)
    assert (tmp_path / "audit.json").read_bytes() == bytes_of_first
    assert json.loads(bytes_of_first)["plan"] == plan.hash
    said = "\n".join(caplog.messages)
    assert f"plan {plan.hash}: 20 steps on each of 2 ranks, 64 exposures, 2 to 2 of each row" in said
    assert "by tokens" in said
    assert "in micro-batches of 2 rows" in said


def test_an_allocation_of_before_clusters_were_named_has_no_count_of_them():
    allocation, tokens = problem([6, 6], 0)
    nameless = dataclasses.replace(allocation, cluster=None)
    assert audit(build_plan(nameless, 1, 4, 0), nameless, tokens, None).exposures_of_clusters is None
