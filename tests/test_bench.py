"""The bench says what it measured: targets and the gate, the cost table, arms that train alike."""

import numpy as np
import pytest

from cluster_bench.bench import loops, safety, scoring
from cluster_bench.bench.balance import OURS, RANDOM, TOKENS, idle_by_allocation
from cluster_bench.bench.clock import Reading, interleaved
from cluster_bench.bench.inputs import base, rows
from cluster_bench.bench.lines import Line


def test_a_verdict_is_the_comparison_and_needs_a_quiet_machine_only_for_times():
    assert Line("9", "f", 2.6, ">= 2.5", "x", timed=True).verdict(quiet=True) == "holds"
    assert Line("9", "f", 2.4, ">= 2.5", "x", timed=True).verdict(quiet=True) == "misses"
    assert Line("9", "f", 2.6, ">= 2.5", "x", timed=True).verdict(quiet=False) == "inconclusive"
    assert Line("7", "f", 0.0, "<= 0.02").verdict(quiet=False) == "holds"
    assert Line("", "f", 0.5).verdict(quiet=True) == ""
    assert Line("7", "f", 0.011, "<= 0.02").text(True).split() == ["7", "f", "1.1%", "<=", "2.0%", "holds"]


def test_arms_take_turns_and_each_keeps_its_least():
    order: list[str] = []
    times = interleaved({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 3)
    assert order == ["a", "b"] * 3
    assert all(reading.cpu >= 0 and reading.wall > 0 for reading in times.values())


def test_the_cost_table_finds_the_costs_that_it_was_measured_on(monkeypatch, tmp_path):
    fast = loops.arm(base(tmp_path), rows(8, seed=1), np.arange(8), micro_tokens=512)
    true = {size: 2e-4 + 1e-5 * size + 1e-8 * size**2 for size in (8, 16, 32, 64, 128, 256, 512)}
    packs = {str(size): Reading(seconds * (loops.PACK // size), 1.0) for size, seconds in true.items()}
    monkeypatch.setattr(loops, "interleaved", lambda *_: packs)
    found = loops.row_cost(fast)(np.array([*true]))
    np.testing.assert_allclose(found, [*true.values()], rtol=1e-9)


@pytest.mark.parametrize("ranks", [4, 8])
def test_levelled_by_what_rows_take_no_rank_waits(ranks):
    """Costs as they are for short rows on a CPU: half of a row's is not for its tokens."""
    waits = idle_by_allocation(ranks, loops.RowCost(6e-4, 1e-5, 1e-8))
    assert waits[OURS] <= 0.03
    assert 2 * waits[OURS] < waits[TOKENS] < waits[RANDOM]


def test_both_loops_have_the_same_losses_and_one_pads(tmp_path):
    model, tokens = base(tmp_path), rows(40, seed=1)
    arms = [
        loops.arm(model, tokens, np.arange(40), **micro)
        for micro in ({"micro_batch": 8}, {"micro_batch": 1}, {"micro_tokens": 512})
    ]
    padded, one, fast = (np.array(arm()) for arm in arms)
    np.testing.assert_allclose(one, padded, rtol=1e-5)
    np.testing.assert_allclose(fast, padded, rtol=1e-5)
    assert [arm.padding for arm in arms] == [pytest.approx(0.5, abs=0.3), 0, 0]


def test_many_questions_at_once_change_no_answer(tmp_path, monkeypatch):
    for name, value in {"QUESTIONS": 6, "PLACES": 4, "MOST": 5, "ROWS": 2}.items():
        monkeypatch.setattr(scoring, name, value)
    found = {line.figure.strip(): line.value for line in scoring.lines(base(tmp_path), rounds=1)}
    assert found["the same answers"] == found["the same choices"] == 1
    assert all(value > 0 for value in found.values())


def test_a_snapshot_is_taken_and_priced(tmp_path):
    arm = loops.arm(base(tmp_path), rows(40, seed=1), np.arange(40), micro_tokens=512)
    arm()  # so that the optimizer has a state
    still, whole = safety.lines(arm)
    assert 0 < still.value <= whole.value * 10
    assert int(still.note.split()[0]) >= 3 * sum(p.nbytes for p in arm.learner.parameters) // 2**20
