"""Target 11: what asking many questions at once saves, and that it changes no answer."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from cluster_bench.artifacts import Model
from cluster_bench.bench.clock import interleaved
from cluster_bench.bench.inputs import LONGEST, VOCABULARY
from cluster_bench.bench.lines import Line
from cluster_bench.scoring.choices import Question, Said, log_likelihoods
from cluster_bench.scoring.generation import generate

QUESTIONS, PLACES, MOST = 64, 64, 64  # questions, rows decoded together, tokens of an answer
ROWS = 16  # questions in a forward pass
OPTIONS, LONG = 4, 12  # options of a question, and the most tokens of one


def lines(model: Model, rounds: int) -> list[Line]:
    """The two ratios, and how often the answers are the same."""
    from transformers import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(model.weights)
    net, rng = loaded.eval(), np.random.default_rng(11)
    asked = [rng.integers(0, VOCABULARY, size).tolist() for size in rng.integers(16, LONGEST // 4, QUESTIONS)]
    asked.sort(key=len, reverse=True)  # as they are asked in scoring
    options = [
        [rng.integers(0, VOCABULARY, size).tolist() for size in rng.integers(2, LONG, OPTIONS)] for _ in asked
    ]
    shared = sorted(map(Question, asked, options), key=lambda question: -len(question.ids))
    apart = [Question(one.tokens, [option]) for one in shared for option in one.options]
    arms: dict[str, Callable[[], list[Any]]] = {
        "one by one": lambda: [_alone(net, question) for question in asked],
        "one place": lambda: _said(net, asked, 1),
        "together": lambda: _said(net, asked, PLACES),
        "per option": lambda: _told(net, apart),
        "shared": lambda: _told(net, shared),
    }
    said = {name: arm() for name, arm in arms.items()}
    times = interleaved(arms, rounds)
    same = np.mean([one == other for one, other in zip(said["one by one"], said["together"], strict=True)])
    chosen = [
        _best([told[0] for told in said["per option"][n : n + OPTIONS]])
        for n in range(0, len(apart), OPTIONS)
    ]
    equal = np.mean([one == _best(told) for one, told in zip(chosen, said["shared"], strict=True)])
    generation, places = (times[name].cpu / times["together"].cpu for name in ("one by one", "one place"))
    choice = times["per option"].cpu / times["shared"].cpu
    note = f"{QUESTIONS} questions, {PLACES} places, {MOST} tokens each"
    return [
        Line("11", "generation against transformers, one by one", generation, ">= 10", "x", True, note),
        Line("", "  against our own decoding, one by one", places, unit="x", timed=True),
        Line("11", "  the same answers", float(same), ">= 1"),
        Line("11", "options against a forward pass each", choice, ">= 2.5", "x", timed=True),
        Line("11", "  the same choices", float(equal), ">= 1"),
    ]


def _alone(net: Any, question: list[int]) -> list[int]:
    ids = torch.tensor([question])
    said = net.generate(ids, max_new_tokens=MOST, do_sample=False, eos_token_id=None, pad_token_id=0)
    return said[0, len(question) :].tolist()


def _said(net: Any, asked: list[list[int]], places: int) -> list[list[int]]:
    said: dict[int, list[int]] = {}
    generate(net, asked, set(), (places, MOST), said.__setitem__)
    return [said[number] for number in range(len(asked))]


def _told(net: Any, asked: list[Question]) -> list[list[Said]]:
    told: dict[int, list[Said]] = {}
    rows = ROWS if len(asked[0].options) > 1 else ROWS * OPTIONS  # as many options in a pass
    log_likelihoods(net, asked, rows, told.__setitem__)
    return [told[number] for number in range(len(asked))]


def _best(told: list[Said]) -> int:
    return int(np.argmax([log for log, _ in told]))
