"""Training is exact: the gradient is the formula's, however rows are dealt to micro-batches and processes."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from conftest import SIZES
from forked import prepared, run
from safetensors.numpy import load_file
from torch import nn
from transformers import AutoModelForCausalLM

from cluster_bench.artifacts import Machine, Model, Workspace
from cluster_bench.config import build
from cluster_bench.training import TRAINERS
from cluster_bench.training.batches import pad
from cluster_bench.training.learner import Learner
from cluster_bench.training.loss import batch_loss
from cluster_bench.training.torchrun import GRACE_S

LOOP: dict[str, Any] = {
    "kind": "paper",
    "ranks": 4,
    "epochs": 2,
    "global_batch": 16,
    "micro_batch": 4,
    "reduction": "rows",
    "optimizer": "adamw",
    "lr": 1e-2,
    "schedule": "linear",
    "warmup": 2,
    "weight_decay": 0.01,
    "clip": None,
    "dtype": "float64",
    "seed": 3,
}


def loop(**changes: Any) -> Any:
    return build("training", TRAINERS, {**LOOP, **changes})


def trained(
    tokens, model, allocation, folder: Path, processes: int, machine: Machine | None = None, **changes: Any
):
    """Train through the real step loop in forked processes; return the weights and the losses."""
    method = build("training", TRAINERS, changes if "kind" in changes else {**LOOP, **changes})
    folder.mkdir()
    machine = dataclasses.replace(machine or Machine(), processes=processes)
    weights = run(prepared(folder, (tokens, model, allocation), method, machine))
    losses = [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return weights, np.array(losses)


@pytest.mark.parametrize("optimizer", ["adamw", "adafactor"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-5)])
def test_any_number_of_processes_ranks_and_micro_batches_gives_the_same(
    tiny_tokens, tiny_model, allocation, tmp_path, dtype, tolerance, optimizer, monkeypatch
):
    monkeypatch.setattr(Learner, "save", _save_as_trained)
    shared = (tiny_tokens, tiny_model, allocation)
    same = {"dtype": dtype, "optimizer": optimizer}
    weights, losses = trained(*shared, tmp_path / "one", 1, **same)
    mixed = dataclasses.replace(allocation, mixed=True)
    others = {
        "two processes": trained(*shared, tmp_path / "two", 2, **same),
        "four processes": trained(*shared, tmp_path / "four", 4, **same),
        "accumulation": trained(*shared, tmp_path / "accumulate", 2, micro_batch=1, **same),
        "shuffled ranks": trained(tiny_tokens, tiny_model, mixed, tmp_path / "mixed", 2, **same),
    }
    moved = _relative(weights, load_file(tiny_model.weights / "model.safetensors"))
    assert moved > 0.01, "nothing was learned, so nothing was compared"
    for name, (other, other_losses) in others.items():
        assert _relative(other, weights) < tolerance, name
        np.testing.assert_allclose(other_losses, losses, rtol=tolerance, err_msg=name)


def _save_as_trained(learner: Any, target: Path, base: Path) -> None:
    learner.model.save_pretrained(target)  # float64 too, so that 1e-9 can be seen


def _relative(a: dict[str, Any], b: dict[str, Any]) -> float:
    gap = sum(float(((a[k].astype(np.float64) - b[k].astype(np.float64)) ** 2).sum()) for k in a)
    return (gap / sum(float((b[k].astype(np.float64) ** 2).sum()) for k in a)) ** 0.5


def _row_gradient(model: nn.Module, tokens: Any, row: int) -> torch.Tensor:
    """The obvious way: one row alone, full logits, mean cross-entropy over the response."""
    start, end, answer = tokens.starts[row], tokens.starts[row + 1], tokens.answers[row]
    ids = torch.tensor(tokens.ids[start:end].astype(np.int64))[None]
    model.zero_grad()
    logits = model(ids).logits[0]
    first = answer - start
    nn.functional.cross_entropy(logits[first - 1 : -1], ids[0, first:]).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize("micro_batch", [1, 3, 24])
def test_gradient_is_the_weighted_sum_of_cluster_means(tiny_tokens, tiny_model, allocation, micro_batch):
    """sum_c (n_c / N) x (mean gradient of cluster c's rows), by autograd one row at a time."""
    model = AutoModelForCausalLM.from_pretrained(tiny_model.weights, dtype=torch.float64)
    means = [
        torch.stack(
            [_row_gradient(model, tiny_tokens, row) for row in allocation.rows[allocation.rank == c]]
        ).mean(0)
        for c in range(4)
    ]
    expected = sum(SIZES[c] / 48 * means[c] for c in range(4))
    model.zero_grad()
    share = allocation.weight.astype(np.float64) / len(allocation.rows)
    for start in range(0, 24, micro_batch):
        part = slice(start, start + micro_batch)
        batch_loss(model, pad(tiny_tokens, allocation.rows[part], share[part], False, "cpu")).backward()
    found = torch.cat([p.grad.flatten() for p in model.parameters()])
    assert float((found - expected).norm() / expected.norm()) < 1e-7  # the weights are float32


def test_token_reduction_is_the_mean_over_weighted_tokens(tiny_tokens, tiny_model):
    model = AutoModelForCausalLM.from_pretrained(tiny_model.weights, dtype=torch.float64)
    rows = np.array([1, 5, 9])
    lengths = tiny_tokens.response_lengths[rows]
    share = np.ones(3) / lengths.sum()
    joint = batch_loss(model, pad(tiny_tokens, rows, share, True, "cpu")).item()
    alone = [
        batch_loss(model, pad(tiny_tokens, rows[[i]], np.ones(1), False, "cpu")).item() for i in range(3)
    ]
    assert joint == pytest.approx(np.average(alone, weights=lengths), rel=1e-12)


def test_torchrun_makes_the_checkpoint_and_the_same_bytes_twice(
    tiny_tokens, tiny_model, allocation, tmp_path
):
    method = loop(dtype="float32")
    made = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "left_by_a_killed_try").write_text("junk")
        work = Workspace(tmp_path / name, Machine(processes=2))
        made.append(method(tiny_tokens, tiny_model, allocation, work))
    first, second = made
    assert not (tmp_path / "a/left_by_a_killed_try").exists()
    assert (first.steps, len(first.rank_seconds), first.processes) == (4, 4, 2)
    assert first.tokens == 2 * tiny_tokens.lengths[allocation.rows].sum()
    assert first.modelled_seconds > 0
    for file in ("model.safetensors", "config.json"):
        assert (first.weights / file).read_bytes() == (second.weights / file).read_bytes()
    assert (tmp_path / "a/metrics.jsonl").read_bytes() == (tmp_path / "b/metrics.jsonl").read_bytes()
    AutoModelForCausalLM.from_pretrained(first.weights)


def test_no_epochs_is_the_base_model(tiny_tokens, tiny_model, allocation, tmp_path):
    base = loop(epochs=0)(tiny_tokens, tiny_model, allocation, Workspace(tmp_path))
    assert (base.steps, base.train_seconds) == (0, 0.0)
    name = "model.safetensors"
    assert (base.weights / name).read_bytes() == (tiny_model.weights / name).read_bytes()


def test_a_failing_rank_is_named_with_its_traceback(tiny_tokens, tiny_model, allocation, tmp_path):
    hollow = Model(tmp_path / "hollow", 0)
    hollow.weights.mkdir()
    shutil.copy2(tiny_model.weights / "config.json", hollow.weights)
    work = Workspace(tmp_path / "work", Machine(processes=2))
    work.folder.mkdir()
    with pytest.raises(RuntimeError, match=r"process [01] failed:(.|\n)*no file named model.safetensors"):
        loop()(tiny_tokens, hollow, allocation, work)
    assert not _processes_of(tmp_path)


LONG = {"epochs": 4000, "dtype": "float32"}
PARENT = """
import pickle, sys
from pathlib import Path
method, arguments = pickle.loads(Path(sys.argv[1]).read_bytes())
method(*arguments)
"""


def _processes_of(folder: Path) -> list[psutil.Process]:
    def mine(process: psutil.Process) -> bool:
        try:
            return str(folder) in " ".join(process.cmdline()) and process.status() != "zombie"
        except psutil.Error:
            return False

    return [p for p in psutil.process_iter() if p.pid != os.getpid() and mine(p)]


def _start_long_training(tokens, model, allocation, folder: Path) -> "subprocess.Popen[bytes]":
    """A parent in a process of its own, waited for until its ranks are past the first steps."""
    import pickle

    work = Workspace(folder / "work", Machine(processes=2))
    work.folder.mkdir(parents=True)
    (folder / "call").write_bytes(pickle.dumps((loop(**LONG), (tokens, model, allocation, work))))
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(folder / "call")], stderr=subprocess.PIPE, cwd=Path.cwd()
    )
    deadline = time.monotonic() + 90
    metrics = work.folder / "metrics.jsonl"
    while not (metrics.exists() and metrics.read_text().count("\n") > 2):
        assert parent.poll() is None, parent.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return parent


def _gone(folder: Path, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while _processes_of(folder):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_outlives_the_parent(tiny_tokens, tiny_model, allocation, tmp_path, ending):
    parent = _start_long_training(tiny_tokens, tiny_model, allocation, tmp_path)
    parent.send_signal(ending)
    parent.communicate(timeout=GRACE_S)  # interrupted, it lets its processes leave a snapshot
    assert _gone(tmp_path, within_s=10)


def test_a_worker_whose_agent_died_before_it_could_ask_ends_at_once(tmp_path):
    """The parent that it is told of is gone: the kernel will never say so."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    orphan = subprocess.run(
        [sys.executable, "-m", "cluster_bench.training.worker", str(tmp_path / "request.json")],
        env={**os.environ, "CLUSTER_BENCH_PARENT": str(gone.pid)},
        capture_output=True,
        timeout=60,
    )
    assert orphan.returncode == -signal.SIGKILL


def test_a_killed_rank_takes_the_others_down_and_is_named(tiny_tokens, tiny_model, allocation, tmp_path):
    parent = _start_long_training(tiny_tokens, tiny_model, allocation, tmp_path)
    victim = int((tmp_path / "work/process_1.pid").read_text())
    os.kill(victim, signal.SIGKILL)
    start = time.monotonic()
    said = parent.communicate(timeout=30)[1].decode()
    assert time.monotonic() - start < 10
    assert "process 1 was ended by SIGKILL" in said
    assert _gone(tmp_path, within_s=1)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"global_batch": 30}, "training: global_batch 30 does not divide over ranks 4 x micro_batch 4"),
        ({"lr": 0}, "training: lr must be above 0"),
        ({"epochs": -1}, "training: epochs and warmup must not be below 0"),
        ({"optimizer": "sgd"}, "training.optimizer: input should be 'adamw' or 'adafactor', got 'sgd'"),
    ],
)
def test_bad_fields_are_refused_before_anything_starts(changes, says):
    with pytest.raises(ValueError, match=says):
        loop(**changes)


def test_an_allocation_for_other_ranks_is_refused(tiny_tokens, tiny_model, allocation, tmp_path):
    with pytest.raises(ValueError, match=r"training.ranks is 2, the allocation's 4"):
        loop(ranks=2)(tiny_tokens, tiny_model, allocation, Workspace(tmp_path))


def test_a_model_without_the_vocabulary_is_refused(tiny_tokens, tiny_model, allocation, tmp_path):
    foreign = dataclasses.replace(tiny_tokens, ids=tiny_tokens.ids + np.int32(100))
    with pytest.raises(ValueError, match="model: token 139 is outside its vocabulary of 40"):
        loop()(foreign, tiny_model, allocation, Workspace(tmp_path))


def test_the_plan_must_be_the_parents(tiny_tokens, tiny_model, allocation, tmp_path):
    with pytest.raises(Exception, match=r"reads plan .*, the parent wrote other"):
        _refused_plan(tiny_tokens, tiny_model, allocation, tmp_path)


def _refused_plan(tokens, model, allocation, folder: Path) -> None:
    request = prepared(folder, (tokens, model, allocation), loop(), Machine())
    run(dataclasses.replace(request, plan_hash="other"))
