"""The toy world: the same seed makes the same rows, and the world is what it says it is."""

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster_bench.artifacts import Workspace
from cluster_bench.benchmarks.toy import ToyBenchmarks
from cluster_bench.corpora.toy_code import ToyCode
from cluster_bench.corpora.toy_medical import ToyMedical
from cluster_bench.models.toy import ToyBase
from cluster_bench.world.items import BENCHMARKS, CODE
from cluster_bench.world.medicine import Fact, knowledge
from cluster_bench.world.programs import programs
from cluster_bench.world.rows import Domain, Recipe, Row, corpus_rows

SKILLS = {"oss": 36, "evol": 36, "medical": 72}
DOMAINS: list[Domain] = ["oss", "evol", "medical"]
COLUMNS = {
    "humaneval": "task_id prompt entry_point canonical_solution test",
    "humaneval_plus": "task_id prompt entry_point canonical_solution test",
    "mbpp": "task_id text code test_list test_setup_code challenge_test_list",
    "mbpp_plus": "task_id prompt code test_imports test_list test",
    "medmcqa": "id question opa opb opc opd cop subject_name",
    "medqa": "id sent1 sent2 ending0 ending1 ending2 ending3 label",
    "pubmedqa": "QUESTION CONTEXTS LABELS LONG_ANSWER final_decision",
    "mmlu_medical": "question subject choices answer",
}


@cache
def rows_of(domain: Domain, seed: int = 1) -> list[Row]:
    return corpus_rows(domain, Recipe(1500, SKILLS[domain], 0.7, 0.3, 0.1, 0.04, 0.03, seed))


@cache
def items_of(name: str) -> list[dict[str, Any]]:
    return BENCHMARKS[name](60, 36 if name in CODE else 72, 0)


@cache
def tokenizer() -> Any:
    from cluster_bench.world.tokenizer import build

    return build()


def test_a_seed_decides_the_rows() -> None:
    flaws = {"duplicates": 0.1, "mislabelled": 0.04, "truncated": 0.03}
    fields = {"rows": 100, "skills": 12, "zipf": 0.7, "filler": 0.3, **flaws}
    for make in (
        lambda seed: ToyCode(style="oss", seed=seed, **fields),
        lambda seed: ToyMedical(seed=seed, **fields),
    ):
        assert make(1)() == make(1)()
        assert make(1)() != make(2)()
        assert len(make(1)()) == 100


@pytest.mark.parametrize("domain", DOMAINS)
def test_flaws_occur_in_their_shares(domain: Domain) -> None:
    flaws = Counter(row.flaw for row in rows_of(domain))
    assert (flaws["duplicate"], flaws["mislabelled"], flaws["truncated"]) == (150, 60, 45)


@pytest.mark.parametrize("domain", DOMAINS)
def test_flaws_are_what_they_are_called(domain: Domain) -> None:
    rows = rows_of(domain)
    clean = {(row.prompt, row.answer) for row in rows if not row.flaw}
    for row in rows:
        if row.flaw == "duplicate":
            assert any((row.prompt.split(". ", 1)[-1], row.answer) in clean for _ in "1")
        elif domain == "medical" and row.flaw in ("", "mislabelled"):
            assert (row.answer == knowledge(72)[row.skill].answer) == (not row.flaw)
        elif domain == "medical":
            assert knowledge(72)[row.skill].answer.startswith(row.answer)
        elif row.flaw in ("", "mislabelled"):
            head, body = row.answer.split("\n", 1)
            argument = head.split("(")[1].rstrip("):")
            right = programs(36)[row.skill].body.replace("{a}", argument)
            assert (body == right) == (not row.flaw)


@pytest.mark.parametrize("domain", DOMAINS)
def test_skills_have_a_long_tail_that_benchmarks_do_not(domain: Domain) -> None:
    count = np.sort(np.bincount([row.skill for row in rows_of(domain)], minlength=SKILLS[domain]))
    assert count[-1] > 5 * np.median(count)
    assert count[0] > 0


def test_benchmarks_ask_evenly() -> None:
    terms = Counter(item["prompt"].split('"""')[1].rsplit(" of ", 1)[0] for item in items_of("humaneval"))
    assert len(terms) == 36
    assert max(terms.values()) == 2
    assert len({item["subject"] for item in items_of("mmlu_medical")[:6]}) == 6


@pytest.mark.parametrize("domain", DOMAINS)
def test_lengths_vary_tenfold_and_by_skill(domain: Domain) -> None:
    words = tokenizer()
    rows = [row for row in rows_of(domain) if not row.flaw]
    lengths = np.array([len(words(row.prompt + row.answer).input_ids) for row in rows])
    assert lengths.max() >= 8 * lengths.min()
    assert np.percentile(lengths, 99.9) >= 5 * np.percentile(lengths, 1)
    answers: dict[int, list[int]] = {}
    for row in rows:
        answers.setdefault(row.skill, []).append(len(words(row.answer).input_ids))
    means = [float(np.mean(of_skill)) for of_skill in answers.values()]
    assert max(means) > 2 * min(means)


@pytest.mark.parametrize("name", list(COLUMNS))
def test_items_have_the_published_columns(name: str) -> None:
    assert all(list(item) == COLUMNS[name].split() for item in items_of(name))


@pytest.mark.parametrize("name", ["humaneval", "humaneval_plus"])
def test_humaneval_solutions_pass(name: str) -> None:
    for item in items_of(name):
        scope: dict[str, Any] = {}
        exec(item["prompt"] + item["canonical_solution"] + item["test"], scope)
        scope["check"](scope[item["entry_point"]])


def test_mbpp_solutions_pass() -> None:
    for item in items_of("mbpp"):
        exec("\n".join([item["code"], *item["test_list"]]), {})
    for item in items_of("mbpp_plus"):
        exec(item["code"] + "\n" + item["test"], {})


def test_plus_means_more_tests_of_the_same_programs() -> None:
    for basic, plus in zip(items_of("humaneval"), items_of("humaneval_plus"), strict=True):
        assert basic["canonical_solution"] == plus["canonical_solution"]
        assert plus["test"].startswith(basic["test"])
        assert plus["test"].count("assert") == 11 > basic["test"].count("assert")
    for basic, plus in zip(items_of("mbpp"), items_of("mbpp_plus"), strict=True):
        assert (basic["text"], basic["code"]) == (plus["prompt"], plus["code"])
        assert plus["test"].count("assert") == 11 > len(basic["test_list"])


def test_right_options_are_facts() -> None:
    answers = {(s.disease, s.value) for s in knowledge(72) if isinstance(s, Fact)}
    for item in items_of("medmcqa"):
        options = [item[f"op{letter}"] for letter in "abcd"]
        assert len(set(options)) == 4
        assert any(d in item["question"] and v == options[item["cop"]] for d, v in answers)
    assert {item["final_decision"] for item in items_of("pubmedqa")} == {"yes", "no", "maybe"}


def test_no_item_occurs_in_a_training_row() -> None:
    text = "\n".join(row.prompt for domain in DOMAINS for row in rows_of(domain))
    calls = {item["prompt"].split("\n")[0].removeprefix("def ") for item in items_of("humaneval")}
    assert not [call for call in calls if call in text]
    for name, column in (("mbpp", "text"), ("medmcqa", "question"), ("medqa", "sent1")):
        assert not [item for item in items_of(name) if item[column] in text]
    assert not [item for item in items_of("mmlu_medical") if item["question"] in text]
    assert not [item for item in items_of("pubmedqa") if " ".join(item["CONTEXTS"]) in text]


def test_the_tokenizer_is_small_and_loses_nothing() -> None:
    words = tokenizer()
    assert len(words) < 1000
    samples = [row.prompt + row.answer for domain in DOMAINS for row in rows_of(domain)[:100]]
    for text in [*samples, "naïve \t Ω\n\n  x"]:
        assert words.decode(words(text).input_ids) == text
    chat = words.apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True, tokenize=False
    )
    assert chat == "<s><|user|>Hi<|assistant|>"
    assert len(words(chat, add_special_tokens=False).input_ids) <= 5


def tiny(**changed: Any) -> ToyBase:
    size = {"hidden": 16, "layers": 1, "heads": 2, "intermediate": 32, "spread": 0.05}
    run = {"code_skills": 6, "medical_skills": 16, "steps": 3, "batch": 4, "lr": 1e-3, "seed": 0}
    return ToyBase(**{**size, **run, **changed})


def test_pretraining_twice_gives_the_same_bytes_over_leftovers(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b" / "weights").mkdir(parents=True)
    (tmp_path / "b" / "weights" / "model.safetensors").write_bytes(b"half")
    made = [tiny()(Workspace(tmp_path / name)) for name in "ab"]
    assert made[0].parameters == made[1].parameters > 0
    names = sorted(file.name for file in made[0].weights.iterdir())
    assert "model.safetensors" in names
    assert names == sorted(file.name for file in made[1].weights.iterdir())
    for name in names:
        assert (made[0].weights / name).read_bytes() == (made[1].weights / name).read_bytes()


def test_benchmark_files_are_as_recorded(tmp_path: Path) -> None:
    made = ToyBenchmarks(items=8, code_skills=6, medical_skills=24, seed=0)(Workspace(tmp_path))
    assert list(made.items) == list(COLUMNS)
    for name, count in made.items.items():
        lines = (tmp_path / f"{name}.jsonl").read_text().splitlines()
        assert len([json.loads(line) for line in lines]) == count == 8


def test_impossible_fields_are_refused_with_their_numbers() -> None:
    with pytest.raises(ValueError, match="hidden 15 does not divide into 2 heads"):
        tiny(hidden=15)
    with pytest.raises(ValueError, match="must not be negative"):
        Recipe(100, 12, 0.7, 0.3, 0.1, 0.1, 0.9, 0)
    with pytest.raises(ValueError, match="skills 500"):
        programs(500)
