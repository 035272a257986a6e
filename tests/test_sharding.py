"""Split over processes (FSDP2), a training is the one that every process holds whole, to rounding."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from forked import prepared, run
from safetensors.numpy import load_file
from test_fast import FAST
from test_snapshots import steps_of
from test_training import loop
from transformers import AutoConfig, AutoModelForCausalLM

from cluster_bench.artifacts import Machine, Model, Workspace
from cluster_bench.config import build
from cluster_bench.training import TRAINERS
from cluster_bench.training.metrics import keep


def losses(folder: Path) -> np.ndarray:
    return np.array(
        [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    )


def sharded(processes: int, **more) -> Machine:
    return Machine(processes=processes, sharded=True, **more)


@pytest.fixture(scope="module")
def tied_model(tiny_model, tmp_path_factory) -> Model:
    """One whose output head is its embedding."""
    config = AutoConfig.from_pretrained(tiny_model.weights, tie_word_embeddings=True)
    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("tied") / "weights"
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    return Model(folder, model.num_parameters())


@pytest.mark.parametrize(
    ("processes", "kind", "base"),
    [(2, "paper", "tiny_model"), (4, "fast", "tiny_model"), (4, "paper", "tied_model")],
)
def test_equal_to_whole_models(tiny_tokens, allocation, tmp_path, processes, kind, base, request):
    """Ranks whose rows take unequally many forward passes included (micro-batches by tokens)."""
    tiny_model = request.getfixturevalue(base)
    changes = {"epochs": 5, "dtype": "float32", "clip": 0.5}
    method = loop(**changes) if kind == "paper" else build("training", TRAINERS, {**FAST, **changes})
    inputs, found = (tiny_tokens, tiny_model, allocation), {}
    for name, machine in {"whole": Machine(processes=processes), "split": sharded(processes)}.items():
        folder = tmp_path / name
        folder.mkdir()
        found[name] = run(prepared(folder, inputs, method, machine)), losses(folder)
    np.testing.assert_allclose(found["split"][1], found["whole"][1], rtol=1e-5)
    assert found["whole"][1][0] - found["whole"][1][-1] > 0.1, "nothing was learned"
    for name, value in found["whole"][0].items():
        np.testing.assert_allclose(found["split"][0][name], value, atol=1e-5, err_msg=name)
    AutoModelForCausalLM.from_pretrained(tmp_path / "split/weights")


def test_goes_on_from_a_snapshot_split_over_other_processes(tiny_tokens, tiny_model, allocation, tmp_path):
    method, inputs = loop(epochs=6, dtype="float32"), (tiny_tokens, tiny_model, allocation)
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    expected = run(prepared(first, inputs, method, sharded(4, snapshot_minutes=0.0)))
    shutil.copytree(first, second, ignore=shutil.ignore_patterns("weights", "meet*"))
    done = steps_of(second)[0]
    assert 0 < done < 12
    keep(second, done)
    found = run(prepared(second, inputs, method, sharded(2), done))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-5, err_msg=name)


def test_offloaded_to_host_memory_through_torchrun(tiny_tokens, tiny_model, allocation, tmp_path):
    method = loop(epochs=1, dtype="bfloat16")
    machine = sharded(2, offload=True)
    made = method(tiny_tokens, tiny_model, allocation, Workspace(tmp_path, machine))
    before = load_file(tiny_model.weights / "model.safetensors")
    after = load_file(made.weights / "model.safetensors")
    assert {name: value.shape for name, value in after.items()} == {n: v.shape for n, v in before.items()}
    assert all(value.dtype == np.float32 for value in after.values())
    assert any((after[name] != before[name]).any() for name in before)


@pytest.mark.parametrize(
    ("changes", "machine", "says"),
    [
        ({"optimizer": "adafactor"}, sharded(2), "Adafactor's factored state cannot be split"),
        ({}, Machine(offload=True), "only with hardware.sharded=true"),
    ],
)
def test_what_cannot_be_split_is_refused(
    tiny_tokens, tiny_model, allocation, tmp_path, changes, machine, says
):
    with pytest.raises(ValueError, match=says):
        loop(**changes)(tiny_tokens, tiny_model, allocation, Workspace(tmp_path, machine))
