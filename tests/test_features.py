"""The features against autograd and a slow, obvious version; batches, resuming, rows without a gradient."""

import multiprocessing
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from cluster_bench.artifacts import Features, Machine, Model, Tokens, Workspace
from cluster_bench.features import EXTRACTORS
from cluster_bench.features.forward import response_gradients

VOCABULARY, HIDDEN = 50, 16


def net(dtype: torch.dtype = torch.float32, heads: int = 4) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        max_position_embeddings=128,
        initializer_range=0.3,
        tie_word_embeddings=False,
    )
    return LlamaForCausalLM(config).to(dtype).eval()


@pytest.fixture
def model(tmp_path: Path) -> Model:
    net().save_pretrained(tmp_path / "model")
    return Model(tmp_path / "model", 0)


def tokens(n: int, seed: int = 0, longest: int = 40) -> Tokens:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, longest, size=n)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    answers = starts[:-1] + np.array([rng.integers(1, length) for length in lengths])
    ids = rng.integers(0, VOCABULARY, size=starts[-1]).astype(np.int32)
    return Tokens(ids, starts, answers, np.arange(n), [])


def row(tokens: Tokens, n: int) -> tuple[list[int], int]:
    begin, end = tokens.starts[n], tokens.starts[n + 1]
    return [int(t) for t in tokens.ids[begin:end]], int(tokens.answers[n] - begin)


def only(tokens: Tokens, rows: list[int]) -> Tokens:
    """The tokens of these rows, in this order."""
    spans = [tokens.ids[tokens.starts[n] : tokens.starts[n + 1]] for n in rows]
    starts = np.concatenate([[0], np.cumsum([len(s) for s in spans])]).astype(np.int64)
    answers = starts[:-1] + np.array([row(tokens, n)[1] for n in rows])
    return Tokens(np.concatenate(spans), starts, answers, np.arange(len(rows)), [])


def slow(net: LlamaForCausalLM, ids: list[int], prompt: int) -> np.ndarray:
    """g by the book: one row, one token at a time, no padding, probabilities by softmax."""
    with torch.inference_mode():
        out = net(torch.tensor([ids]), output_hidden_states=True)
        p = out.logits[0].softmax(-1)
        terms = [(p[t - 1, ids[t]] - 1) * out.hidden_states[-1][0, t - 1] for t in range(prompt, len(ids))]
        return torch.stack(terms).mean(0).numpy()


def extract(tokens: Tokens, model: Model, folder: Path, batch_tokens: int = 200) -> Features:
    folder.mkdir(parents=True, exist_ok=True)
    method = EXTRACTORS["response_gradient"](batch_tokens=batch_tokens, dtype="float32")
    return method(tokens, model, Workspace(folder))


def test_each_term_is_autograds_gradient_of_the_true_tokens_head_row() -> None:
    """Cross-entropy of token t, differentiated by the head's row y_t, is (p_t - 1) h_t; g is their mean."""
    toy, data = net(torch.float64), tokens(6)
    for n in range(len(data)):
        ids, prompt = row(data, n)
        losses = torch.nn.functional.cross_entropy(
            toy(torch.tensor([ids])).logits[0, prompt - 1 : -1], torch.tensor(ids[prompt:]), reduction="none"
        )
        terms = [
            torch.autograd.grad(loss, toy.lm_head.weight, retain_graph=True)[0][token]
            for loss, token in zip(losses, ids[prompt:], strict=True)
        ]
        ours = response_gradients(toy, [np.array(ids, dtype=np.int32)], np.array([prompt]))[0]
        np.testing.assert_allclose(ours, torch.stack(terms).mean(0).numpy(), rtol=1e-9, atol=1e-13)


def test_agrees_with_the_slow_version_at_unit_length(model: Model, tmp_path: Path) -> None:
    data, toy = tokens(30), net()
    features = extract(data, model, tmp_path / "work")
    for n in range(len(data)):
        g = slow(toy, *row(data, n))
        np.testing.assert_allclose(features.norms[n], np.linalg.norm(g), rtol=1e-5)
        np.testing.assert_allclose(features.values[n], g / np.linalg.norm(g), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(features.values, axis=1), 1, atol=1e-6)
    assert features.seconds > 0


def test_a_row_alone_is_the_row_in_any_batch(model: Model, tmp_path: Path) -> None:
    """So neither the batch nor the padding can be seen."""
    data = tokens(25)
    together = extract(data, model, tmp_path / "together", batch_tokens=10_000)
    alone = extract(data, model, tmp_path / "alone", batch_tokens=1)
    np.testing.assert_allclose(together.values, alone.values, atol=1e-5)
    np.testing.assert_allclose(together.norms, alone.norms, rtol=1e-5)
    order = [int(n) for n in np.random.default_rng(1).permutation(len(data))]
    shuffled = extract(only(data, order), model, tmp_path / "shuffled")
    np.testing.assert_allclose(shuffled.values, together.values[order], atol=1e-5)


def test_prompt_tokens_have_no_term_of_their_own() -> None:
    """With the whole context kept, moving the border by one token removes exactly that token's term."""
    toy, (ids, _) = net(torch.float64), row(tokens(1, seed=3), 0)
    row_ids = np.array(ids, dtype=np.int32)
    long, short = (response_gradients(toy, [row_ids], np.array([prompt]))[0] for prompt in (1, 2))
    count = len(ids) - 1
    first = response_gradients(toy, [row_ids[:2]], np.array([1]))[0]
    np.testing.assert_allclose(long * count - short * (count - 1), first, rtol=1e-9, atol=1e-13)


def test_many_positions_go_through_the_head_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    toy, data = net(torch.float64), tokens(5)
    rows = [np.array(row(data, n)[0], dtype=np.int32) for n in range(5)]
    prompts = np.array([row(data, n)[1] for n in range(5)])
    whole = response_gradients(toy, rows, prompts)
    monkeypatch.setattr("cluster_bench.features.forward.LOGITS", 3 * VOCABULARY)
    np.testing.assert_allclose(response_gradients(toy, rows, prompts), whole, rtol=1e-12)


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_a_row_without_a_finite_gradient_is_flagged(value: float, model: Model, tmp_path: Path) -> None:
    """Token 7 is embedded as nothing (or as NaN), so the row of 7s has hidden state, hence g, 0 (or NaN)."""
    broken = AutoModelForCausalLM.from_pretrained(model.weights)
    broken.model.embed_tokens.weight.data[7] = value
    broken.save_pretrained(model.weights)
    data = tokens(10)
    data.ids[:] = np.where(data.ids == 7, 8, data.ids)
    data.ids[data.starts[4] : data.starts[5]] = 7
    features = extract(data, model, tmp_path / "work", batch_tokens=10_000)
    assert features.norms[4] == 0
    assert not features.values[4].any()
    assert (np.delete(features.norms, 4) > 0).all()
    assert np.isfinite(features.values).all()


def test_bfloat16_points_the_same_way(model: Model, tmp_path: Path) -> None:
    data = tokens(20)
    exact = extract(data, model, tmp_path / "exact")
    (tmp_path / "half").mkdir()
    half = EXTRACTORS["response_gradient"](batch_tokens=200, dtype="bfloat16")(
        data, model, Workspace(tmp_path / "half")
    )
    assert (exact.values * half.values).sum(1).min() > 0.99


def test_killed_and_run_again_gives_the_same_bytes(model: Model, tmp_path: Path) -> None:
    data = tokens(400)
    whole = extract(data, model, tmp_path / "whole", batch_tokens=1)
    folder, shards = tmp_path / "killed", tmp_path / "killed" / "shards"
    child = multiprocessing.get_context("fork").Process(target=extract, args=(data, model, folder, 1))
    child.start()
    while not (shards / "000005.npz").exists():
        time.sleep(0.001)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    kept = {path: path.stat().st_mtime_ns for path in shards.glob("*.npz")}
    assert 5 < len(kept) < 400
    shutil.copytree(shards, tmp_path / "kept", copy_function=os.link)
    again = extract(data, model, folder, batch_tokens=1)
    assert again.values.tobytes() == whole.values.tobytes()
    assert again.norms.tobytes() == whole.norms.tobytes()
    assert {shards / p.name: p.stat().st_mtime_ns for p in (tmp_path / "kept").glob("*.npz")} == kept
    assert not shards.exists()


def test_threads_are_put_back(model: Model, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    method = EXTRACTORS["response_gradient"](batch_tokens=200, dtype="float32")
    method(tokens(3), model, Workspace(tmp_path, Machine(threads=before + 1)))
    assert torch.get_num_threads() == before


def test_a_head_that_is_not_linear_is_refused(tmp_path: Path) -> None:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    config = Gemma2Config(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
    )
    Gemma2ForCausalLM(config).save_pretrained(tmp_path / "model")
    with pytest.raises(ValueError, match="final_logit_softcapping"):
        extract(tokens(3), Model(tmp_path / "model", 0), tmp_path / "work")


def test_no_room_for_a_token_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_tokens must be at least 1, got 0"):
        EXTRACTORS["response_gradient"](batch_tokens=0, dtype="float32")


def test_no_feature_needs_no_model(tmp_path: Path) -> None:
    features = EXTRACTORS["none"]()(tokens(7), Model(tmp_path / "nowhere", 0), Workspace(tmp_path))
    assert features.values.shape == (7, 1)
    assert (features.values == 1).all()
    assert (features.norms == 1).all()
    assert features.seconds == 0
