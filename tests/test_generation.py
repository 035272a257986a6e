"""Continuous refilling: what a question is answered depends on nothing but the question."""

import json

import numpy as np
import pytest

MOST = 12


@pytest.fixture(scope="module")
def model():
    """A random Llama whose keys and values are shared by two heads each."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.5,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def questions() -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 50, size).tolist() for size in rng.integers(1, 20, 40)]


ENDS = {1, 2, 3, 4}


def alone(model, question: list[int]) -> list[int]:
    """One question at a time, everything computed anew for each token."""
    import torch

    ids, said = list(question), []
    with torch.no_grad():
        while len(said) < MOST:
            token = int(model(torch.tensor([ids])).logits[0, -1].argmax())
            if token in ENDS:
                break
            ids, said = [*ids, token], [*said, token]
    return said


def answers(model, questions, places: int) -> dict[int, list[int]]:
    from cluster_bench.scoring.generation import generate

    given: dict[int, list[int]] = {}
    generate(model, questions, ENDS, (places, MOST), given.__setitem__)
    return given


@pytest.mark.parametrize("places", [1, 3, 64])
def test_equal_to_one_at_a_time(model, questions, places):
    expected = [alone(model, question) for question in questions]
    assert len({len(said) for said in expected}) > 5, "answers of one length would not refill"
    given = answers(model, questions, places)
    assert [given[n] for n in range(len(questions))] == expected


def test_a_free_place_is_taken_at_once(model, questions):
    calls: list[int] = []
    hook = model.register_forward_hook(lambda module, args, out: calls.append(len(out.logits)))
    try:
        given = answers(model, questions, 4)
    finally:
        hook.remove()
    decoded = sum(min(len(said), MOST - 1) for said in given.values())
    assert calls.count(4) <= decoded / 4 + MOST, "a place stood empty while questions waited"


def test_no_questions(model):
    assert answers(model, [], 4) == {}


def test_a_try_that_was_ended_is_gone_on_from(model, questions, tmp_path):
    from cluster_bench.scoring.engine import _answers

    asked = [tuple(question) for question in questions]
    whole = {asked[n]: said for n, said in answers(model, questions, 4).items()}
    file = tmp_path / "unfinished.jsonl"
    lines = [json.dumps([question, whole[question]]) for question in asked[:10]]
    file.write_text("\n".join(lines) + "\n" + lines[3][:7])  # ended within a line
    said = _answers(file)
    assert said == {question: whole[question] for question in asked[:10]}
    left = [question for question in asked if question not in said]
    rest = answers(model, left, 4)
    assert said | {left[n]: answer for n, answer in rest.items()} == whole
    assert _answers(file) == said, "the cut line is dropped for good"
