"""Overlap of corpus and benchmarks: against the slow obvious search, in the walk, in the reports, at size."""

import csv
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_bench.artifacts import Benchmarks, Contamination, Corpus, load, save
from cluster_bench.cells import CONF, Cell, store_of
from cluster_bench.config import structure
from cluster_bench.contamination import DETECTORS, overlap, seen
from cluster_bench.contamination.decontaminate import Decontaminate
from cluster_bench.contamination.overlap import overlaps
from cluster_bench.contamination.words import TEXTS, item_parts, words
from cluster_bench.pipeline import walk
from cluster_bench.report.contamination import pairs, write
from cluster_bench.scoring.benchmarks import BENCHMARKS
from cluster_bench.study import contaminated

WORDS = st.sampled_from(["a", "b", "c"])  # so few that runs of several words occur
TEXT = st.lists(st.lists(WORDS, max_size=14).map(" ".join), max_size=3)


def longest(row: list[str], item: list[str]) -> int:
    """Words in the longest run that a part of the row and a part of the item share: try them all."""
    best = 0
    for one in map(words, row):
        for other in map(words, item):
            for i in range(len(one)):
                for j in range(len(other)):
                    run = 0
                    while i + run < len(one) and j + run < len(other) and one[i + run] == other[j + run]:
                        run += 1
                    best = max(best, run)
    return best


@given(st.lists(TEXT, max_size=6), st.lists(TEXT, max_size=6), st.integers(2, 5), st.booleans())
def test_the_pairs_are_those_of_a_slow_search(rows, items, n, in_pieces):
    with pytest.MonkeyPatch.context() as patch:
        if in_pieces:
            patch.setattr(overlap, "CHUNK", 8)
            patch.setattr(overlap, "MATCHES", 2)
        found = overlaps(rows, items, n)
    every = {(r, i): longest(row, item) for r, row in enumerate(rows) for i, item in enumerate(items)}
    expected = [(r, i, run) for (r, i), run in sorted(every.items()) if run >= n]
    assert list(zip(found.row.tolist(), found.item.tolist(), found.run.tolist(), strict=True)) == expected
    for row, item, run, start in zip(found.row, found.item, found.run, found.start, strict=True):
        said = [word for part in rows[row] for word in (*words(part), "")]
        shared = " ".join(said[start : start + run])
        assert any(shared in " ".join(words(part)) for part in items[item])


def test_what_nearly_every_text_shares_is_refused(monkeypatch):
    monkeypatch.setattr(overlap, "PAIRS", 24)
    texts = [["one and the same form of words"]] * 5
    with pytest.raises(
        ValueError, match=r"contamination\.shortest: over 24 pairs .* share 3 words; raise it"
    ):
        overlaps(texts, texts, 3)


def test_case_punctuation_and_layout_do_not_count():
    code = "def add_one(values):\n    return [v + 1 for v in values]"
    row = ["Write: DEF  add one ( VALUES ) -> return: `v` - 1, for v in values!"]
    assert overlaps([row], [[code]], 8).run.tolist() == [11]
    assert overlaps([["one two three", "four five"]], [["one two three four five"]], 4).run.tolist() == []


ITEMS = {
    "mbpp": [
        {
            "text": "Write a function to count the red marbles that remain in a bag after each draw.",
            "code": "x",
        },
        {
            "text": "Sum.",
            "code": "def f(a):\n    return a",
            "test_list": ["assert f(1) == 1"],
            "test": "secret",
        },
    ],
    "medqa": [
        {"sent1": "A man of 40 has a cough since he moved into a damp house by the sea.", "ending0": "No"}
    ],
}
CORPUS = Corpus(
    [
        "Tell me: write a function to count the red marbles that remain in a bag after each draw, please",
        "Name a colour.",
        "Explain why",
        "count the red marbles that remain in a box",
    ],
    ["return 1", "red", "a man of 40 has a COUGH since he moved into a damp house, by the sea", "0"],
)


@pytest.fixture
def found(tmp_path: Path) -> Contamination:
    for name, rows in ITEMS.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    benchmarks = Benchmarks(tmp_path, {name: len(rows) for name, rows in ITEMS.items()}, {})
    return DETECTORS["ngrams"](shortest=8)(CORPUS, benchmarks)


def test_pairs_are_told_by_benchmark_and_item(found: Contamination, tmp_path: Path) -> None:
    told = [*zip(found.row, found.benchmark, found.item, found.run, strict=True)]
    assert told == [(0, 0, 0, 16), (2, 1, 0, 17), (3, 0, 0, 8)]
    assert seen.items(found, 8) == seen.items(found, 13) == {"mbpp": 1, "medqa": 1}
    assert seen.items(found, 8, among=np.array([1, 3])) == {"mbpp": 1, "medqa": 0}
    assert seen.items(found, 13, among=np.array([1, 3])) == {"mbpp": 0, "medqa": 0}
    lines = pairs("rows", CORPUS, found, 13)
    assert [line[:5] for line in lines] == [("rows", "mbpp", 0, 0, 16), ("rows", "medqa", 0, 2, 17)]
    assert str(lines[1][5]).startswith("a man of 40 has a cough")
    with pytest.raises(ValueError, match="runs from 8 words on are listed, not 7"):
        seen.rows(found, 7)
    save(found, tmp_path)
    again = load(Contamination, tmp_path)
    assert all(np.array_equal(value, getattr(again, name)) for name, value in vars(found).items())


def test_decontaminating_drops_the_rows_that_share_13_words(found: Contamination) -> None:
    clean = Decontaminate()(CORPUS, found)
    assert clean == Corpus([CORPUS.prompts[1], CORPUS.prompts[3]], [CORPUS.answers[1], CORPUS.answers[3]])
    only = Corpus(CORPUS.prompts[:1], CORPUS.answers[:1])
    with pytest.raises(ValueError, match=r"dataset\.decontaminate: all 1 rows share 13 words"):
        Decontaminate()(only, found)


def test_nothing_in_common_is_an_artefact_too(tmp_path: Path) -> None:
    (tmp_path / "mbpp.jsonl").write_text(json.dumps(ITEMS["mbpp"][0]) + "\n")
    none = DETECTORS["ngrams"](shortest=8)(Corpus(["a"], ["b"]), Benchmarks(tmp_path, {"mbpp": 1}, {}))
    save(none, tmp_path)
    assert seen.items(load(Contamination, tmp_path)) == {"mbpp": 0}
    assert len(Decontaminate()(Corpus(["a"], ["b"]), none)) == 1


def test_every_benchmark_has_its_texts() -> None:
    assert TEXTS.keys() == BENCHMARKS.keys()
    for name, benchmark in BENCHMARKS.items():
        assert set(TEXTS[name]) & set(benchmark.columns)


def test_decontamination_changes_no_address_unless_asked_for(tree) -> None:
    plain, asked = (walk(structure(tree(f"dataset.decontaminate={said}"))) for said in ("false", "true"))
    assert "decontaminated" not in plain.nodes
    assert plain.tokens.parents == (plain.corpus, plain.model)
    assert asked.tokens.parents == (asked.decontaminated, asked.model)
    assert asked.corpus.key == plain.corpus.key
    assert asked.scores.key != plain.scores.key


@pytest.mark.parametrize("option", [path.stem for path in sorted((CONF / "dataset").glob("[!_]*.yaml"))])
def test_every_corpus_can_be_decontaminated(option: str, tree, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"instruction": "Add.", "output": "3"}) + "\n")
    path = [f"dataset.path={tmp_path / 'rows.jsonl'}"] if option == "jsonl" else []
    run = walk(structure(tree(f"dataset={option}", "dataset.decontaminate=true", *path)))
    assert run.decontaminated is not None
    assert run.decontaminated.parents == (run.corpus, run.contamination)
    assert "decontaminate" not in run.corpus.recipe["spec"]


def test_the_corpus_in_the_walk_shares_nothing_once_decontaminated(tree, store, tmp_path: Path) -> None:
    whole = tree("dataset.decontaminate=true", f"store={store.root}")
    run = walk(structure(whole))
    before = store.get(run.contamination)
    clean, benchmarks = store.get(run.decontaminated), store.get(run.benchmarks)
    dropped = seen.rows(before)
    plain = walk(structure(tree(f"store={store.root}")))
    every, none = np.arange(len(store.get(run.corpus))), dict.fromkeys(benchmarks.items, 0)
    assert contaminated(plain, store, every) == seen.items(before) != none
    assert contaminated(plain, store, np.setdiff1d(every, dropped)) == none
    assert contaminated(run, store, np.arange(len(clean))) == none
    assert 0 < len(dropped) == len(store.get(run.corpus)) - len(clean)
    assert len(seen.rows(DETECTORS["ngrams"](shortest=13)(clean, benchmarks), 13)) == 0
    cell = Cell({}, whole)
    write([cell, cell], tmp_path)
    with (tmp_path / "contamination.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert {int(line["row"]) for line in lines} == set(dropped.tolist())
    assert all(len(line["text"].split()) == int(line["words"]) >= 13 for line in lines)
    assert store_of(whole).has(run.contamination)


def test_the_command_prints_pairs_and_counts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cluster_bench.report.contamination", f"store={tmp_path}"]
    ended = subprocess.run([*command, "dataset.rows=50"], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("dataset,benchmark,item,row,words,text\ntoy_oss,")
    assert "50 rows, 512 items" in ended.stderr
    assert "at least 13 words: " in ended.stderr
    ended = subprocess.run([*command, "dataset.decontaminate=maybe"], capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr == "error: dataset.decontaminate: must be true or false, got 'maybe'\n"


def test_many_rows_are_looked_through_in_little_time() -> None:
    """A tenth of 100k rows of 100 words against 10k items of 50; all pairs would take hours."""
    rng = random.Random(0)
    vocabulary = [f"w{n}" for n in range(20_000)]
    items = [[" ".join(rng.choices(vocabulary, k=50))] for _ in range(10_000)]
    rows = [[" ".join(rng.choices(vocabulary, k=100))] for _ in range(10_000)]
    rows[7] = [f"{rows[7][0][:300]} {items[77][0]}"]
    start = time.process_time()
    found = overlaps(rows, items, 8)
    assert time.process_time() - start < 20
    assert (found.row.tolist(), found.item.tolist(), found.run.tolist()) == ([7], [77], [50])


@pytest.mark.real
@pytest.mark.skipif("CLUSTER_BENCH_DATA" not in os.environ, reason="needs CLUSTER_BENCH_DATA")
@pytest.mark.parametrize("n", [8, 13])
def test_on_real_rows_the_pairs_are_those_of_sets_of_ngrams(n: int) -> None:
    data = Path(os.environ["CLUSTER_BENCH_DATA"])
    lines = (data / "train/code_alpaca_4k.jsonl").read_text().split("\n")[:-1]
    rows = [(row["instruction"] + "\n" + row["input"], row["output"]) for row in map(json.loads, lines)]
    items = item_parts("mbpp", data / "benchmarks/mbpp.jsonl")

    def grams(text) -> set[tuple[str, ...]]:
        said = map(words, text)
        return {tuple(part[i : i + n]) for part in said for i in range(len(part) - n + 1)}

    having: dict[tuple[str, ...], set[int]] = {}
    for number, item in enumerate(items):
        for gram in grams(item):
            having.setdefault(gram, set()).add(number)
    expected = {(r, i) for r, row in enumerate(rows) for gram in grams(row) for i in having.get(gram, ())}
    found = overlaps(rows, items, n)
    assert set(zip(found.row.tolist(), found.item.tolist(), strict=True)) == expected
    assert len(expected) == len(found.row) > 0
