"""How models are asked: nothing twice, by several processes as by one, as lm-eval asks; doubts and noise."""

import dataclasses
import functools
import json
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import lm_eval.tasks
import numpy as np
import pytest
import torch
from test_scoring import (  # noqa: F401
    HUMANEVAL,
    MBPP,
    MEDMCQA,
    MEDQA,
    MMLU,
    PUBMEDQA,
    benchmarks,
    items_of,
    loaded,
    records,
    scorer,
    student,
    write,
)

from cluster_bench.artifacts import Checkpoint, Machine, Workspace
from cluster_bench.scoring import generation, vllm
from cluster_bench.scoring.answers import Answers
from cluster_bench.scoring.asking import Questions, _others
from cluster_bench.scoring.benchmarks import BENCHMARKS, Form, Item
from cluster_bench.scoring.extraction import program
from cluster_bench.scoring.judging import Judge
from cluster_bench.scoring.noise import Noise, floor
from cluster_bench.scoring.outcomes import doubts


def files(folder: Path) -> set[Path]:
    return set(folder.rglob("*.jsonl"))


def test_what_was_answered_is_never_asked_again(student, benchmarks, tmp_path):  # noqa: F811
    kept = tmp_path / "answers"
    first = scorer()(student, benchmarks, Workspace(tmp_path, kept=kept))
    before = files(kept)
    other = scorer(timeout_s=2.0, benchmarks=("medqa", "humaneval"))
    again = other(student, benchmarks, Workspace(tmp_path, kept=kept))
    assert files(kept) == before, "a process that asks anything opens a file of its own"
    assert {name: first.values[name] for name in again.values} == again.values
    scorer(max_new_tokens=5)(student, benchmarks, Workspace(tmp_path, kept=kept))
    assert len({file.parent for file in files(kept)}) == 2, "another decoding, other answers"


def test_another_version_of_what_generates_is_asked_anew(tmp_path, monkeypatch):
    rest = ("float32", "transformers", None)
    asked = Questions(tmp_path, "m", tmp_path, ("medqa",), tmp_path, Machine(), "texts", "chat", 4, 8, *rest)
    before = asked.kept
    assert asked.kept == before
    monkeypatch.setattr("cluster_bench.scoring.asking.version", lambda name: "0.1")
    assert asked.kept != before


def test_other_weights_have_other_answers(student, benchmarks, loaded, tmp_path):  # noqa: F811
    model, tokenizer = loaded
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "weights")
    config = tmp_path / "weights/config.json"
    config.write_text(config.read_text().replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-05'))
    changed = Checkpoint(tmp_path / "weights", 1, 1, 1.0, 1.0, [1.0], 1)
    for checkpoint in (student, changed):
        method = scorer(benchmarks=("medqa",))
        method(checkpoint, benchmarks, Workspace(tmp_path, kept=tmp_path / "answers"))
    assert len({file.parent for file in files(tmp_path / "answers")}) == 2


def test_programs_are_heard_of_while_others_are_still_generated(loaded, tmp_path):  # noqa: F811
    from lm_eval.api.instance import Instance

    from cluster_bench.scoring.engine import Engine, How

    left: list[int] = []
    with Answers(tmp_path) as answers:
        how = How(2, lambda prompt, text: left.append(6 - len(answers._said)))
        engine = Engine(*loaded, answers, how)
        asked = {"max_gen_toks": 4, "until": [], "do_sample": False}
        engine.generate_until([Instance("generate_until", {}, (f"<s>{c}", asked), 0) for c in "abcdef"])
    assert sorted(left, reverse=True) == left == [5, 4, 3, 2, 1, 0]


@pytest.fixture
def many(tmp_path):
    rows = [{**row, "sent1": f"{n}. {row['sent1']}"} for n in range(32) for row in MEDQA]
    return write(tmp_path, {"medqa": rows, "humaneval": HUMANEVAL})


def test_two_processes_ask_what_one_would(student, many, tmp_path):  # noqa: F811
    method, places = scorer(benchmarks=("medqa", "humaneval")), {}
    for processes in (1, 2):
        (tmp_path / str(processes)).mkdir()
        places[processes] = Workspace(
            tmp_path / str(processes), Machine(processes=processes), tmp_path / f"answers{processes}"
        )
    one, two = (method(student, many, place) for place in places.values())
    assert dataclasses.replace(two, seconds=one.seconds) == one
    alone, shared = (
        [len(file.read_text().splitlines()) for file in files(place.kept)] for place in places.values()
    )
    assert sum(alone) == sum(shared) == 160 + 3
    assert len(alone) == 1
    assert abs(shared[0] - shared[1]) <= 2, "each its share"


def test_a_process_that_fails_is_named(many, tmp_path):
    questions = Questions(
        tmp_path / "no weights", "m", many.folder, ("medqa",), tmp_path, Machine(), "texts", "chat",
        4, 8, "float32", "transformers", None,
    )  # fmt: skip
    with (
        pytest.raises(RuntimeError, match=r"scoring: process 1 ended with code 1:\n(.|\n)*no weights"),
        _others(questions, tmp_path, 2) as wait,
    ):
        wait()


# lm-eval's own tasks, read from the files of the data set instead of the hub.
OWN = {
    "medmcqa": "medmcqa/medmcqa.yaml",
    "medqa": "medqa/medqa.yaml",
    "mmlu_medical": "mmlu/default/mmlu_anatomy.yaml",
}


def own_task(name: str, file: Path, folder: Path):
    path = Path(lm_eval.tasks.__file__).parent / OWN[name]
    splits = ", ".join(f"{split}: {file}" for split in ("train", "validation", "test", "dev"))
    (folder / f"own_{name}.yaml").write_text(
        f"include: {path}\ntask: own_{name}\ndataset_path: json\ndataset_name: null\n"
        f"dataset_kwargs: {{data_files: {{{splits}}}}}\n"
    )
    manager = lm_eval.tasks.TaskManager(include_path=str(folder), include_defaults=False)
    return manager.load([f"own_{name}"])


def agree(name: str, rows: list[dict], model, checkpoint: Checkpoint, folder: Path) -> None:
    """Same model, same items: the same prompts, item by item the same choice, the same accuracy."""
    from lm_eval.evaluator import evaluate
    from lm_eval.models.huggingface import HFLM

    given = write(folder, {name: rows})
    ours = scorer(benchmarks=(name,), prompts="completion", batch_size=3)(
        checkpoint, given, Workspace(folder)
    )
    lm = HFLM(model[0], tokenizer=model[1], batch_size=1, add_bos_token=True)
    own = evaluate(lm, own_task(name, folder / f"{name}.jsonl", folder), bootstrap_iters=0)
    samples = sorted(own["samples"][f"own_{name}"], key=lambda sample: sample["doc_id"])
    for row, record, sample in zip(rows, records(folder, name), samples, strict=True):
        item = BENCHMARKS[name].item(row, Form("letters", "completion"))
        assert sample["arguments"][0] == (item.prompt, item.choices[0])
        logs = [log for log, _ in sample["filtered_resps"]]
        np.testing.assert_allclose(record["raw"], logs, rtol=1e-4, atol=1e-4)
        assert (record["chosen"] == item.answer) == sample["acc"]
    assert ours.values[name] == pytest.approx(own["results"][f"own_{name}"]["acc,none"])


@pytest.mark.parametrize("name", list(OWN))
def test_a_plain_text_is_scored_as_lm_eval_scores_its_own_task(name, student, loaded, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    rows = {
        "medmcqa": MEDMCQA,
        "medqa": MEDQA,
        "mmlu_medical": [r for r in MMLU if r["subject"] == "anatomy"],
    }
    agree(name, rows[name], loaded, student, tmp_path)


@pytest.mark.real
@pytest.mark.skipif("CLUSTER_BENCH_DATA" not in os.environ, reason="CLUSTER_BENCH_DATA is not set")
def test_published_questions_are_scored_as_lm_eval_scores_them(loaded, tmp_path, monkeypatch):  # noqa: F811
    from transformers import LlamaConfig, LlamaForCausalLM

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    config = LlamaConfig.from_pretrained(loaded[0].name_or_path, max_position_embeddings=8192)
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(tmp_path / "weights")
    loaded[1].save_pretrained(tmp_path / "weights")
    file = Path(os.environ["CLUSTER_BENCH_DATA"]) / "benchmarks/medqa_4options.jsonl"
    rows = [json.loads(line) for line in file.read_text().split("\n")[:40]]
    checkpoint = Checkpoint(tmp_path / "weights", 1, 1, 1.0, 1.0, [1.0], 1)
    agree("medqa", rows, (model, loaded[1]), checkpoint, tmp_path)


def test_a_base_model_goes_on_from_the_text_itself(student, tmp_path):  # noqa: F811
    item = items_of("humaneval", HUMANEVAL[0], prompts="completion")
    assert item.prompt == HUMANEVAL[0]["prompt"]
    assert program("    return 2 * x\n", item) == HUMANEVAL[0]["prompt"] + "    return 2 * x\n"
    assert program(" \n", item) is None
    asked = items_of("mbpp", MBPP[0], prompts="completion")
    assert asked.prompt == '"""\nWrite a function to halve.\nassert halve(3) == 1.5\n"""\n'
    given = write(tmp_path, {"humaneval": HUMANEVAL, "mbpp": MBPP})
    method = scorer(benchmarks=("humaneval", "mbpp"), prompts="completion")
    scores = method(student, given, Workspace(tmp_path))
    assert "completion:complete 0-shot" in scores.protocols["humaneval"]
    for name in ("humaneval", "mbpp"):
        for record in records(tmp_path, name):
            assert not any(stop in record["raw"] for stop in BENCHMARKS[name].stops)


def test_the_noise_floor_is_over_two_batch_sizes_and_two_orders(student, benchmarks, tmp_path):  # noqa: F811
    noise = Noise(batch_size=2, seed=1, items=3)
    scores = scorer(benchmarks=("medqa", "humaneval"), noise=noise)(student, benchmarks, Workspace(tmp_path))
    assert {name: of["items"] for name, of in scores.noise.items()} == {"medqa": 3, "humaneval": 3}
    quiet = scorer(benchmarks=("medqa", "humaneval"))(student, benchmarks, Workspace(tmp_path))
    assert (quiet.noise, quiet.values) == ({}, scores.values)


def test_noise_counts_items_and_spread(tmp_path):
    def answers(right: str):
        return {
            "medqa": [{"item": n, "verdict": "passed" if c == "1" else "wrong"} for n, c in enumerate(right)]
        }

    asked: list[tuple[int, int, int | None]] = []
    runs = iter(["110", "010", "110"])

    def answer(questions: Questions):
        asked.append((questions.batch_size, questions.seed, questions.first))
        return answers(next(runs))

    questions = Questions(
        tmp_path,
        "m",
        tmp_path,
        ("medqa",),
        tmp_path,
        Machine(),
        "texts",
        "chat",
        4,
        8,
        "float32",
        "transformers",
        None,
    )
    found = floor(Noise(2, 7, 3), questions, answers("11100"), answer)
    assert asked == [(2, 0, 3), (4, 7, 3), (2, 7, 3)]
    assert found == {"medqa": {"items": 3, "spread": pytest.approx(2 / 3), "changed": 2}}


CHOICES = [items_of("medqa", {**MEDQA[0], "label": n % 4, "ending0": str(n)}) for n in range(40)]
ALL_YES = [items_of("pubmedqa", PUBMEDQA[0])] * 40
PROGRAMS = [items_of("humaneval", HUMANEVAL[0])] * 40


@pytest.mark.parametrize(
    ("name", "asked", "verdicts", "why"),
    [
        ("medqa", CHOICES, ["passed"] * 10 + ["wrong"] * 30, "0.250 is not above chance, 0.250"),
        ("medqa", CHOICES, ["wrong"] * 40, "0.000 is not above chance"),
        ("pubmedqa", ALL_YES, ["passed"] * 30 + ["wrong"] * 10, "0.750 is not above chance, 1.000"),
        ("medqa", CHOICES, ["passed"] * 30 + ["wrong"] * 10, ""),
        ("humaneval", PROGRAMS, ["wrong"] * 40, "not one program passed"),
        ("humaneval", PROGRAMS, ["passed"] * 37 + ["unparsed"] * 3, "3 of 40 responses hold no program"),
        ("humaneval", PROGRAMS, ["passed"] * 38 + ["unparsed"] * 2, ""),
    ],
)
def test_a_score_that_looks_broken_is_doubted_with_three_samples(name, asked, verdicts, why):
    of = [{"item": n, "verdict": verdict, "raw": f"said {n}"} for n, verdict in enumerate(verdicts)]
    error = np.std([v == "passed" for v in verdicts], ddof=1) / np.sqrt(40)
    said = doubts(name, of, asked, error)
    assert bool(said) == bool(why)
    if why:
        assert said[0].startswith(f"{name}: {why}")
        assert len(said) == 4
        assert all("said" in line for line in said[1:])


def test_vllm_where_it_cannot_run_is_refused(student, benchmarks, tmp_path):  # noqa: F811
    with pytest.raises(ValueError, match=r"scoring\.backend: vllm needs a GPU and pip install vllm"):
        scorer(backend="vllm")(student, benchmarks, Workspace(tmp_path))


class FakeEngine:
    """The calls of vLLM's engine that are ours: one token a step for each request, 7 and then 8, 9, ..."""

    def __init__(self) -> None:
        self.said: dict[str, list[int]] = {}

    def add_request(self, request_id, prompt, params) -> None:
        assert params == {"temperature": 0.0, "max_tokens": 6, "stop_token_ids": [0, 9]}
        self.said[request_id] = [7] * prompt["prompt_token_ids"][0]  # as if it had said so many

    def has_unfinished_requests(self) -> bool:
        return bool(self.said)

    def abort_request(self, request_ids) -> None:
        for request_id in request_ids:
            del self.said[request_id]

    def step(self):
        outputs = []
        for request_id, said in [*self.said.items()]:
            said.append(7 + len(said))
            finished = said[-1] == 9
            outputs.append(
                SimpleNamespace(
                    request_id=request_id, finished=finished, outputs=[SimpleNamespace(token_ids=said)]
                )
            )
            if finished:
                del self.said[request_id]
        return outputs


def test_vllm_gives_each_answer_as_soon_as_it_is_there(monkeypatch):
    """Only the loop around vLLM: itself it cannot run here, see the test below."""
    fake = SimpleNamespace(
        LLM=lambda *_, **__: SimpleNamespace(llm_engine=FakeEngine()), SamplingParams=lambda **fields: fields
    )
    monkeypatch.setitem(sys.modules, "vllm", fake)
    model = SimpleNamespace(config=SimpleNamespace(_name_or_path="weights"), dtype="torch.float32")
    heard: list[tuple[int, list[int]]] = []
    say = functools.partial(vllm.generate, model, [[0], [1]], {9, 0}, (2, 6))
    say(lambda number, said: heard.append((number, said)))
    assert heard == [(1, [7, 8]), (0, [7, 8])]  # the shorter first, without the token that ends it
    heard.clear()
    say(lambda number, said: heard.append((number, said)), lambda said: said[-1] == 8)
    assert heard == [(1, [7, 8]), (0, [7, 8])]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available() or find_spec("vllm") is None, reason="no GPU with vLLM")
def test_vllm_says_what_transformers_says(loaded, student):  # noqa: F811
    model = loaded.model.to("cuda").to(torch.bfloat16)
    questions = [loaded.tokenizer.encode(f"Question {n}?") for n in range(8)]
    said: list[dict[int, list[int]]] = [{}, {}]
    for kept, generate in zip(said, (generation.generate, vllm.generate), strict=True):
        generate(model, questions, set(loaded.tokenizer.all_special_ids), (8, 16), kept.__setitem__)
    assert sum(said[0][n] == said[1][n] for n in said[0]) >= 6  # in bfloat16 a near tie may go either way


def test_a_program_that_timed_out_is_judged_once_for_all_ways_of_asking(tmp_path):
    item = Item("ask", tests="assert f() == 1", defines=("f",))
    endless = "def f():\n    while True:\n        pass\n"
    with Judge({"humaneval": [item]}, 0.3, 512, Machine(), ()) as judge:
        ways = [{"humaneval": [{"item": 0, "extracted": endless, "verdict": "unparsed"}]} for _ in range(3)]
        judge.judge(ways[0])
        start = time.monotonic()
        judge.judge(ways[1])
        judge.judge(ways[2])
        assert time.monotonic() - start < 0.3
    assert [way["humaneval"][0]["verdict"] for way in ways] == ["timeout"] * 3
