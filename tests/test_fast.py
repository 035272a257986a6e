"""The fast loop learns what the paper's does: rows packed without padding, logits in parts, one sum."""

import dataclasses
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from forked import request_of
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from test_training import LOOP, trained
from torch import nn
from torch._dynamo.utils import counters
from transformers import AutoModelForCausalLM

from cluster_bench.artifacts import Machine, Workspace
from cluster_bench.config import build
from cluster_bench.cost.compute import train_flops
from cluster_bench.cost.devices import DEVICES
from cluster_bench.cost.shapes import read
from cluster_bench.training import TRAINERS, loss
from cluster_bench.training.batches import pack, pad
from cluster_bench.training.flops import PEAKS, row_flops
from cluster_bench.training.loss import batch_loss
from cluster_bench.training.model import load_model
from cluster_bench.training.packing import ROW_BY_ROW, attention_for, cut, micro_batches
from cluster_bench.training.preflight import WITH_BF16, check

FAST: dict[str, Any] = {
    **{name: value for name, value in LOOP.items() if name != "micro_batch"},
    "kind": "fast",
    "micro_tokens": 40,  # of rows of 2 to 25: a rank's 4 rows of a step take one to three passes
}
LORA = {"rank": 4, "alpha": 8.0, "targets": ["q_proj", "down_proj"]}


def fast(**changes: Any) -> Any:
    return build("training", TRAINERS, {**FAST, **changes})


@pytest.fixture
def run(tiny_tokens, tiny_model, allocation, tmp_path):
    """Train in forked processes; return the weights and the losses."""

    def call(name: str, processes: int = 1, **changes: Any):
        return trained(tiny_tokens, tiny_model, allocation, tmp_path / name, processes, **changes)

    return call


@pytest.mark.parametrize("reduction", ["rows", "tokens"])
def test_losses_are_the_papers_step_by_step(run, reduction):
    """In float32, with unequal lengths and weights, whatever the number of processes."""
    same = {"dtype": "float32", "reduction": reduction, "epochs": 4}
    weights, expected = run("paper", 1, **same)
    assert expected[0] - expected[-1] > 0.1, "nothing was learned, so nothing was compared"
    for processes in (1, 2):
        other, losses = run(f"fast {processes}", processes, **{**FAST, **same})
        np.testing.assert_allclose(losses, expected, atol=1e-4, rtol=0)
        for name, weight in weights.items():
            np.testing.assert_allclose(other[name], weight, atol=1e-4, rtol=0)


def _packed_model(folder: Path, attention: str = ROW_BY_ROW) -> Any:
    attention_for("cpu", "float64")  # makes row by row known
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation=attention)


@pytest.mark.parametrize("attention", [ROW_BY_ROW, "sdpa"])
def test_no_row_sees_another(tiny_tokens, tiny_model, attention):
    """Each row's gradient is its own alone; transformers' own masks, made from the positions, agree."""
    model = _packed_model(tiny_model.weights, attention)
    rows, share = np.array([0, 7, 3, 11]), np.array([0.1, 0.4, 0.3, 0.2])
    together = pack(tiny_tokens, rows, share, False, "cpu")
    assert together.ids.numel() == tiny_tokens.lengths[rows].sum(), "padding"
    other = dataclasses.replace(tiny_tokens, ids=tiny_tokens.ids.copy())
    other.ids[tiny_tokens.starts[7] : tiny_tokens.starts[8]] = 5
    found, changed = (_per_token(model, pack(t, rows, share, False, "cpu")) for t in (tiny_tokens, other))
    mine = np.repeat(rows != 7, tiny_tokens.response_lengths[rows])
    np.testing.assert_array_equal(found[mine], changed[mine])
    assert not np.allclose(found[~mine], changed[~mine])
    joint = _gradient(model, together)
    plain = AutoModelForCausalLM.from_pretrained(tiny_model.weights, dtype=torch.float64)
    alone = _gradient(plain, *(pad(tiny_tokens, rows[[i]], share[[i]], False, "cpu") for i in range(4)))
    assert float((joint - alone).norm() / joint.norm()) < 1e-10


def _per_token(model: nn.Module, batch: Any) -> np.ndarray:
    """What each response token counts: the loss of a batch in which only that token has a share."""
    alone = torch.eye(len(batch.at), dtype=torch.float64)
    with torch.no_grad():
        return np.array([batch_loss(model, dataclasses.replace(batch, share=s)).item() for s in alone])


def _gradient(model: nn.Module, *batches: Any) -> torch.Tensor:
    model.zero_grad()
    for batch in batches:
        batch_loss(model, batch).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize("loop", [{"micro_batch": 4}, {"micro_tokens": 40}])
def test_a_rank_without_rows_in_a_step_takes_no_pass(loop):
    assert micro_batches(np.empty(0, np.int64), loop) == []
    assert [len(part) for part in micro_batches(np.full(9, 9), loop)] == [4, 4, 1]


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(50, 120))
def test_cut_is_a_partition_within_the_budget_and_wastes_little(lengths, budget):
    values = np.array(lengths, dtype=np.int64)
    parts = cut(values, budget)
    assert sorted(row for part in parts for row in part.tolist()) == list(range(len(lengths)))
    filled = [int(values[part].sum()) for part in parts]
    assert all(total <= budget for total in filled)
    assert sum(2 * total <= budget for total in filled) <= 1


def test_logits_in_parts_give_the_plain_gradient_and_are_never_whole(tiny_tokens, tiny_model, monkeypatch):
    model = _packed_model(tiny_model.weights)
    batch = pack(tiny_tokens, np.arange(20), np.full(20, 0.05), False, "cpu")
    plain_loss, plain = batch_loss(model, batch).item(), _gradient(model, batch)
    monkeypatch.setattr(loss, "LOGITS", 40 * 16)  # 16 positions of a vocabulary of 40
    positions: list[int] = []
    model.lm_head.register_forward_hook(lambda _, given, __: positions.append(len(given[0])))
    kept: list[torch.Size] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t.shape), t)[1], lambda t: t):
        value = batch_loss(model, batch)
    assert max(positions) == 16 < len(batch.at) == sum(positions)
    assert not [shape for shape in kept if shape[-1:] == (40,)], "logits wait for the backward pass"
    value.backward()
    assert sum(positions) == 2 * len(batch.at), "each part is computed twice"
    assert value.item() == pytest.approx(plain_loss, rel=1e-12)
    found = _gradient(model, batch)
    assert float((found - plain).norm() / plain.norm()) < 1e-12


@pytest.mark.parametrize("dtype", ["float32", "pure_bfloat16"])
def test_gradients_are_summed_once_a_step(run, tmp_path, monkeypatch, dtype):
    """However many micro-batches: counted where they leave the process."""
    plain = dist.all_reduce

    def counted(tensor: torch.Tensor, *more: Any) -> Any:
        with (tmp_path / "sums").open("a") as file:
            file.write(f"{tensor.numel()}\n")
        return plain(tensor, *more)

    monkeypatch.setattr(dist, "all_reduce", counted)
    _, losses = run("counted", 2, **{**FAST, "dtype": dtype, "micro_tokens": 25})
    sums = [int(line) for line in (tmp_path / "sums").read_text().split()]
    assert sum(size > 10 for size in sums) == 2 * len(losses), "not one per process and step"
    assert len(sums) == (2 if dtype == "float32" else 4) * len(losses), "bfloat16 would round the loss"


@pytest.mark.parametrize(("dtype", "optimizer"), [("bfloat16", "adafactor"), ("pure_bfloat16", "adamw")])
def test_lower_precision_learns_nearly_the_same(run, dtype, optimizer):
    _, expected = run("float32", 1, **{**FAST, "dtype": "float32", "optimizer": optimizer})
    weights, losses = run("lower", 1, **{**FAST, "dtype": dtype, "optimizer": optimizer})
    np.testing.assert_allclose(losses, expected, rtol=0.03)
    assert {weight.dtype for weight in weights.values()} == {np.dtype(np.float32)}


def test_recomputed_activations_change_nothing(run):
    _, expected = run("kept", 1, **FAST)
    _, losses = run("again", 1, machine=Machine(activation_checkpointing=True), **FAST)
    np.testing.assert_allclose(losses, expected, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # torch's own, tracing
def test_compiled_layers_serve_every_micro_batch(tiny_tokens, tiny_model, monkeypatch):
    """Traced once, not anew for the lengths of each micro-batch; without a code generator, for speed."""
    plain = nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda layer, **more: plain(layer, backend="eager", **more))
    parts = [np.arange(start, start + 2 + start % 5) for start in range(0, 40, 2)]
    losses: list[list[float]] = []
    for machine in (Machine(), Machine(compile=True)):
        torch.compiler.reset()
        counters.clear()
        model = load_model(request_of(fast(), tiny_model, Path(), "", machine))
        batches = [pack(tiny_tokens, rows, np.ones(len(rows)), False, "cpu") for rows in parts]
        losses.append([batch_loss(model, batch).item() for batch in batches])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-12)
    assert 0 < counters["stats"]["unique_graphs"] <= 4


def test_adapters_are_trained_alone_and_merged(run, tiny_model):
    pytest.importorskip("peft", reason="needs the extra lora")
    _, full = run("full", 1, **FAST)
    weights, losses = run("lora", 2, **{**FAST, "lora": LORA, "epochs": 10})
    base = load_file(tiny_model.weights / "model.safetensors")
    assert losses[0] == pytest.approx(full[0], rel=1e-12)
    assert losses[-1] < losses[0]
    changed = {name for name in base if not np.array_equal(base[name], weights[name].astype(np.float32))}
    assert base.keys() == weights.keys()
    assert changed == {name for name in base if any(target in name for target in LORA["targets"])}
    for name in changed:
        assert np.linalg.matrix_rank(weights[name] - base[name], tol=1e-6) <= LORA["rank"]


def test_torchrun_makes_the_checkpoint(tiny_tokens, tiny_model, allocation, tmp_path):
    made = fast(dtype="float32")(tiny_tokens, tiny_model, allocation, Workspace(tmp_path))
    AutoModelForCausalLM.from_pretrained(made.weights)
    assert (made.steps, made.processes) == (4, 1)
    learned, timing = (
        [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        for name in ("metrics.jsonl", "timing.jsonl")
    )
    assert [[*line] for line in learned] == 4 * [["step", "loss", "lr", "grad_norm"]]
    for line in timing:
        assert line["mfu"] is None, "there is no peak to compare with"
        assert len(line["rank_seconds"]) == 4
        assert line["seconds"] >= sum(line["rank_seconds"])
        assert line["peak_memory_gib"] > 0
    tokens = sum(line["tokens_per_second"] * line["seconds"] for line in timing)
    assert round(tokens) == made.tokens == 2 * tiny_tokens.lengths[allocation.rows].sum()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"micro_tokens": 20},
            r"micro_tokens: row \d+ has 21 tokens, more than the budget of 20; set it to 21",
        ),
        ({"ranks": 2}, "training.ranks is 2, the allocation's 4"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_starts(
    tiny_tokens, tiny_model, allocation, tmp_path, changes, says
):
    with pytest.raises(ValueError, match=says):
        fast(**changes)(tiny_tokens, tiny_model, allocation, Workspace(tmp_path))


def test_adapters_without_peft_are_refused(tiny_tokens, tiny_model, allocation, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ValueError, match=r"training.lora: needs peft; pip install 'cluster-bench\[lora\]'"):
        fast(lora=LORA)(tiny_tokens, tiny_model, allocation, Workspace(tmp_path))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"micro_tokens": 0}, "training: micro_tokens must be above 0"),
        ({"global_batch": 30}, "training: global_batch 30 does not divide over ranks 4"),
        ({"micro_batch": 4}, "training.micro_batch: FastLoop has no such field"),
        ({"lora": {**LORA, "rank": 0}}, "training.lora: lora: rank 0, 2 targets: each at least 1"),
    ],
)
def test_bad_fields_are_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        fast(**changes)


def test_flops_and_peaks_are_the_cost_models(tiny_model):
    """Two counts, written apart, of what a step is; each row attends to itself alone."""
    lengths = np.array([1, 7, 100])
    shape = read(tiny_model.weights / "config.json")
    expected = [train_flops(shape, float(n), float(n)) for n in lengths]
    np.testing.assert_allclose(row_flops(tiny_model, lengths), expected)
    assert {device.name: device.bfloat16 for device in DEVICES.values()} == dict(PEAKS)


def said_before_training(tokens, model, caplog, device, **changes) -> str:
    check(fast(**changes), tokens, model, np.arange(8), Machine(device=device))
    return caplog.text


def test_a_gpu_without_bfloat16_is_refused(tiny_tokens, tiny_model, caplog, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    with pytest.raises(ValueError, match=r"Tesla T4 has no bfloat16; set training\.dtype=float32"):
        said_before_training(tiny_tokens, tiny_model, caplog, "cuda", dtype="bfloat16")


def test_bfloat16_in_software_is_said(tiny_tokens, tiny_model, caplog, monkeypatch):
    said_before_training(tiny_tokens, tiny_model, caplog, "cpu", dtype="bfloat16")
    here = WITH_BF16 & set(Path("/proc/cpuinfo").read_text().split())
    assert ("multiplies bfloat16 in software" in caplog.text) is not bool(here)
    caplog.clear()
    monkeypatch.setattr("cluster_bench.training.preflight.WITH_BF16", {"processor"})  # any CPU's word
    assert said_before_training(tiny_tokens, tiny_model, caplog, "cpu", dtype="bfloat16") == ""


@pytest.mark.skipif(find_spec("flash_attn") is not None, reason="flash-attn is installed")
def test_without_flash_attention_one_line_says_what_runs_instead(tiny_tokens, tiny_model, caplog):
    said = said_before_training(tiny_tokens, tiny_model, caplog, "cuda", dtype="float32")
    assert said.count("flash-attn is not installed; attention runs row by row") == 1
    assert attention_for("cuda", "bfloat16") == ROW_BY_ROW


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_flash_attention_is_row_by_row(tiny_tokens, tiny_model):
    pytest.importorskip("flash_attn", reason="needs flash-attn")
    rows, share = np.arange(8), np.full(8, 0.125)
    losses = []
    for attention in (attention_for("cuda", "bfloat16"), attention_for("cuda", "float32")):
        model = _packed_model(tiny_model.weights, attention).to("cuda", torch.bfloat16)
        losses.append(batch_loss(model, pack(tiny_tokens, rows, share, False, "cuda")).item())
    assert losses[0] == pytest.approx(losses[1], rel=0.01)


@pytest.mark.parametrize(
    ("option", "twin"), [("fast_toy", "toy"), ("fast", "paper_code"), ("fast_medical", "paper_medical")]
)
def test_each_option_is_the_papers_but_for_the_loop(experiment, option, twin):
    ours, theirs = (vars(experiment(f"training={name}").training) for name in (option, twin))
    assert {**ours, "micro_batch": None} == {
        **theirs, "micro_batch": None, "micro_tokens": ours["micro_tokens"], "lora": None,
    }  # fmt: skip


def test_the_adapters_option_is_the_fast_loop(experiment):
    assert experiment("training=fast_lora").training.lora.targets == ("q_proj", "k_proj", "v_proj", "o_proj")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_compiled_layers_on_a_gpu_lose_nothing(tiny_tokens, tiny_model):
    rows, losses = np.arange(8), []
    for machine in (Machine(device="cuda"), Machine(device="cuda", compile=True)):
        model = load_model(request_of(fast(dtype="float32"), tiny_model, Path(), "", machine))
        losses.append(batch_loss(model, pack(tiny_tokens, rows, np.full(8, 0.125), False, "cuda")).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
