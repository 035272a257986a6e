"""Continuous refilling: what a question is answered depends on nothing but the question."""

import numpy as np
import pytest

from cluster_bench.scoring.generation import generate

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
    from cluster_bench.scoring.answers import Answers

    asked = [tuple(question) for question in questions]
    whole = {asked[n]: said for n, said in answers(model, questions, 4).items()}
    with Answers(tmp_path) as first:
        for question in asked[:10]:
            first.keep(question, whole[question])
    [file] = tmp_path.glob("*.jsonl")
    file.write_text(file.read_text()[:-5])  # ended within the last line
    with Answers(tmp_path) as second:
        assert [question in second for question in asked[:11]] == [True] * 9 + [False] * 2
        left = [question for question in asked if question not in second]
        generate(model, left, ENDS, (4, MOST), lambda n, said: second.keep(left[n], said))
    third = Answers(tmp_path)
    assert {question: third[question] for question in asked} == whole


def test_an_answer_can_be_over_before_its_end(model, questions):
    given: dict[int, list[int]] = {}
    generate(model, questions, ENDS, (3, MOST), given.__setitem__, lambda said: said[-1] % 5 == 0)
    for n, question in enumerate(questions):
        said = alone(model, question)
        over = next((at for at, token in enumerate(said) if token % 5 == 0), len(said))
        assert given[n] == said[: over + 1]
