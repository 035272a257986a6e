"""No work is lost: a training that was ended at any moment goes on, and ends with the same bytes."""

import dataclasses
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from forked import prepared, run
from safetensors.numpy import load_file
from test_training import PARENT, loop

from cluster_bench.artifacts import Machine, Workspace
from cluster_bench.training.alive import end_silent
from cluster_bench.training.metrics import Work, join, keep
from cluster_bench.training.snapshots import FACTS, KEPT, SNAPSHOTS, latest

SHORT = {"epochs": 15, "dtype": "float32"}  # 30 steps
STEPS = 30
EACH_STEP = Machine(processes=2, snapshot_minutes=0.0)
NEVER = Machine(processes=2, snapshot_minutes=1e6)


@pytest.fixture(scope="module", params=["adamw", "adafactor"])
def whole(request, tiny_tokens, tiny_model, allocation, tmp_path_factory):
    """A training that nothing interrupts, with snapshots as often as they can be written."""
    method, inputs = loop(**SHORT, optimizer=request.param), (tiny_tokens, tiny_model, allocation)
    folder = tmp_path_factory.mktemp("whole")
    return folder, method, inputs, run(prepared(folder, inputs, method, EACH_STEP))


def steps_of(folder: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step_")) for path in folder.glob(f"{SNAPSHOTS}/step_*"))


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_going_on_from_a_snapshot_ends_at_the_same_weights(whole, tmp_path, processes):
    folder, method, inputs, expected = whole
    assert 1 <= len(steps_of(folder)) <= KEPT
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("weights", "meet*"))
    done = steps_of(folder)[0]
    keep(tmp_path, done)
    machine = dataclasses.replace(NEVER, processes=processes)
    found = run(prepared(tmp_path, inputs, method, machine, done))
    for name, value in expected.items():
        if processes == 2:
            assert (found[name] == value).all(), name
        else:
            np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-5, err_msg=name)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(STEPS))
    seconds = join(tmp_path, Work(np.ones(STEPS), np.ones(STEPS), None), 4)
    assert np.isfinite(seconds.ranks).all()
    assert seconds.processes.tolist() == [2] * done + [processes] * (STEPS - done)
    assert seconds.modelled > 0


def test_snapshots_change_nothing(whole, tmp_path):
    _, method, inputs, expected = whole
    found = run(prepared(tmp_path, inputs, method, NEVER))
    assert not steps_of(tmp_path)
    assert all((found[name] == value).all() for name, value in expected.items())


def test_a_full_disk_costs_the_snapshot_not_the_training(whole, tmp_path):
    """A file may be larger than the weights, but not as large as a snapshot with AdamW's state."""
    folder, method, inputs, expected = whole
    limit = 3 * (folder / "weights/model.safetensors").stat().st_size // 2
    found = run(prepared(tmp_path, inputs, method, EACH_STEP), limit)
    assert all((found[name] == value).all() for name, value in expected.items())
    if method.optimizer == "adamw":
        assert not steps_of(tmp_path)
        assert re.search(r"no snapshot after step 1: .*File too large", (tmp_path / "log_0").read_text())


def written(folder: Path, steps: int, plan: str = "plan") -> Path:
    made = folder / f"step_{steps}"
    made.mkdir()
    (made / "part").write_bytes(b"x" * 100)
    (made / FACTS).write_text(json.dumps({"plan": plan, "sizes": {"part": 100}}))
    return made


def test_the_newest_whole_snapshot_counts(tmp_path, caplog):
    assert latest(tmp_path, "plan") == 0
    made = {steps: written(tmp_path, steps) for steps in (9, 80, 100, 120)}
    os.truncate(made[120] / "part", 50)
    (made[100] / FACTS).unlink()
    assert latest(tmp_path, "plan") == 80
    assert "part has 50 bytes instead of 100; it is removed" in caplog.text
    assert "it was not written to the end" in caplog.text
    assert not made[120].exists()
    (made[80] / "part").unlink()
    assert latest(tmp_path, "plan") == 9


def test_a_snapshot_of_another_plan_is_refused_with_both_hashes(tmp_path):
    written(tmp_path, 5, "theirs")
    with pytest.raises(RuntimeError, match="a snapshot of plan theirs, but this training follows plan ours"):
        latest(tmp_path, "ours")


def start(folder: Path, call: tuple) -> "subprocess.Popen[bytes]":
    """A parent in a process of its own, with real torchrun below it."""
    (folder / "call").write_bytes(pickle.dumps(call))
    command = [sys.executable, "-c", PARENT, str(folder / "call")]
    return subprocess.Popen(command, stderr=subprocess.PIPE, cwd=Path.cwd())


def wait_for(parent: "subprocess.Popen[bytes]", there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 180
    while not there():
        assert parent.poll() is None, parent.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_ended_and_started_again_gives_the_same_bytes(tiny_tokens, tiny_model, allocation, tmp_path, ending):
    """Killed, it goes on from its last snapshot; told to end, it first takes one of the step it is in."""
    method = loop(epochs=30, dtype="float32")
    inputs, work, calm = (tiny_tokens, tiny_model, allocation), tmp_path / "work", tmp_path / "calm"
    calm.mkdir()
    expected = run(prepared(calm, inputs, method, NEVER))
    work.mkdir()
    machine = EACH_STEP if ending == signal.SIGKILL else NEVER
    parent = start(tmp_path, (method, (*inputs, Workspace(work, machine))))
    metrics = work / "metrics.jsonl"
    enough = 2 if ending == signal.SIGKILL else 0
    wait_for(
        parent, lambda: metrics.exists() and b"\n" in metrics.read_bytes() and len(steps_of(work)) >= enough
    )
    parent.send_signal(ending)
    parent.communicate(timeout=30)
    deadline = time.monotonic() + 30
    while not steps_of(work) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert 0 < steps_of(work)[-1] < 60
    made = method(*inputs, Workspace(work, NEVER))
    found = load_file(made.weights / "model.safetensors")
    assert all((found[name] == value).all() for name, value in expected.items())
    assert not (work / SNAPSHOTS).exists(), "snapshots are not part of the artefact"
    assert not [*work.glob("process_*"), *work.glob("timing_*")]
    assert np.isfinite(made.rank_seconds).all()


def test_a_frozen_process_is_named_and_takes_all_down(tiny_tokens, tiny_model, allocation, tmp_path):
    inputs = tiny_tokens, tiny_model, allocation
    work, limit_s = tmp_path / "work", 15.0  # longer than loading takes
    work.mkdir()
    long = loop(epochs=4000, dtype="float32")
    machine = dataclasses.replace(NEVER, silent_s=limit_s)
    parent = start(tmp_path, (long, (*inputs, Workspace(work, machine))))
    metrics = work / "metrics.jsonl"
    wait_for(parent, lambda: metrics.exists() and metrics.read_text().count("\n") > 2)
    os.kill(int((work / "process_1.pid").read_text()), signal.SIGSTOP)
    began = time.monotonic()
    said = parent.communicate(timeout=60)[1].decode()
    assert time.monotonic() - began < limit_s + 10
    assert "process 1 has been silent for" in said
    assert "it was stopped by a signal" in said


SLEEPER = """
import os, sys, time
from pathlib import Path
from cluster_bench.training.alive import Alive
folder = Path(sys.argv[1])
(folder / "process_0.pid").write_text(str(os.getpid()))
Alive(folder, 0).does("step 7, rank 0, row 0 of 4")
def stuck_here():
    time.sleep(600)
stuck_here()
"""


def test_a_stuck_process_shows_its_stack(tmp_path):
    sleeper = subprocess.Popen([sys.executable, "-c", SLEEPER, str(tmp_path)])
    sign = tmp_path / "process_0.alive"
    wait_for(sleeper, lambda: sign.exists() and "step 7" in sign.read_text())
    end_silent(tmp_path, 1, 60.0)
    time.sleep(1.1)
    with pytest.raises(RuntimeError, match=r"last word: step 7, rank 0(.|\n)*in stuck_here"):
        end_silent(tmp_path, 1, 1.0)
    assert sleeper.wait(10) == -signal.SIGKILL
