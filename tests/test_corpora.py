"""Instruction sets from files and from the hub: what becomes a prompt, and what bad input is told."""

import hashlib
import json
from pathlib import Path

import pytest

from cluster_bench.artifacts import Corpus
from cluster_bench.corpora import CORPORA

ROW = {"instruction": "Add.", "input": "1, 2", "output": "3"}


def write(path: Path, *rows: object) -> str:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


def test_a_row_is_the_instruction_and_its_input_if_there_is_one(tmp_path: Path) -> None:
    alone = {"instruction": "Sing.", "output": "La\u2028la"}
    path = write(
        tmp_path / "rows.jsonl", ROW, "", {**alone, "input": ""}, {**alone, "input": "<noinput>"}, alone
    )
    expected = Corpus(["Add.\n1, 2", "Sing.", "Sing.", "Sing."], ["3", *["La\u2028la"] * 3])
    assert CORPORA["jsonl"](path=path)() == expected
    assert CORPORA["jsonl"](path=path, rows=2)() == Corpus(expected.prompts[:2], expected.answers[:2])


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", {"problem": "p", "context": "c", "solution": "s"})
    assert CORPORA["jsonl"](path=path, columns=["problem", "context", "solution"])() == Corpus(
        ["p\nc"], ["s"]
    )
    assert CORPORA["jsonl"](path=path, columns=["problem", "", "solution"])() == Corpus(["p"], ["s"])
    with pytest.raises(ValueError, match="no row has column 'contxt'"):
        CORPORA["jsonl"](path=path, columns=["problem", "contxt", "solution"])()


def test_the_content_of_the_file_counts_in_the_address(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", ROW)
    before = CORPORA["jsonl"](path=path)
    assert vars(before)["sha256"] == hashlib.sha256(Path(path).read_bytes()).hexdigest()
    assert CORPORA["jsonl"](path=path, sha256=before.sha256) == before
    write(Path(path), ROW, ROW)
    after = CORPORA["jsonl"](path=path)
    assert after.sha256 != before.sha256
    with pytest.raises(ValueError, match=f"has {after.sha256}, not {before.sha256}"):
        CORPORA["jsonl"](path=path, sha256=before.sha256)
    with pytest.raises(ValueError, match="has changed since"):
        before()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("{'instruction': 1}", "rows.jsonl:2: not JSON: Expecting property name"),
        ("[1, 2]", "rows.jsonl:2: a row must be an object with columns, not list"),
        ({"question": "q", "answer": "a"}, "rows.jsonl:2: no column 'instruction'; it has question, answer"),
        ({"instruction": "q"}, "rows.jsonl:2: no column 'output'; it has instruction"),
        ({**ROW, "output": 3}, "rows.jsonl:2: column 'output' must be text, got 3"),
        ({**ROW, "output": None}, "rows.jsonl:2: column 'output' must be text, got None"),
    ],
)
def test_a_bad_line_is_named(bad: object, message: str, tmp_path: Path) -> None:
    corpus = CORPORA["jsonl"](path=write(tmp_path / "rows.jsonl", ROW, bad))
    with pytest.raises(ValueError, match=r"rows\.jsonl:2") as error:
        corpus()
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b'{"instruction": "\xff"}\n')
    with pytest.raises(ValueError, match=r"rows\.jsonl:1: not UTF-8: .* at byte 18"):
        CORPORA["jsonl"](path=str(tmp_path / "rows.jsonl"))()


def test_a_file_that_is_missing_empty_or_short_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"path .*nowhere\.jsonl cannot be read: No such file"):
        CORPORA["jsonl"](path=str(tmp_path / "nowhere.jsonl"))
    with pytest.raises(ValueError, match="has no rows"):
        CORPORA["jsonl"](path=write(tmp_path / "empty.jsonl", " "))()
    with pytest.raises(ValueError, match=r"has 1 rows, fewer than dataset\.rows 2"):
        CORPORA["jsonl"](path=write(tmp_path / "short.jsonl", ROW), rows=2)()
    with pytest.raises(ValueError, match="rows must be at least 1, or null for all, got 0"):
        CORPORA["jsonl"](path=write(tmp_path / "short.jsonl", ROW), rows=0)


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder in the layout of a data set on the hub."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "set").mkdir()
    write(tmp_path / "set" / "train.jsonl", ROW, {**ROW, "input": "<noinput>"}, {**ROW, "input": None})
    return str(tmp_path / "set")


def test_a_published_set_is_read_through_datasets(published: str) -> None:
    whole = CORPORA["hub"](
        repo=published, revision="main", split="train", columns=["instruction", "input", "output"]
    )
    assert whole() == Corpus(["Add.\n1, 2", "Add.", "Add."], ["3"] * 3)
    part = CORPORA["hub"](
        repo=published, revision="main", split="train", columns=["instruction", "", "output"], rows=1
    )
    assert part() == Corpus(["Add."], ["3"])


def test_a_published_set_that_does_not_fit_is_named(published: str) -> None:
    def corpus(split: str, columns: list[str], rows: int | None = None) -> Corpus:
        return CORPORA["hub"](repo=published, revision="main", split=split, columns=columns, rows=rows)()

    with pytest.raises(
        ValueError, match=r"dataset\.columns: .* has no problem; it has instruction, input, output"
    ):
        corpus("train", ["problem", "", "output"])
    with pytest.raises(ValueError, match=r"dataset\.rows: .* has 3, fewer than 9"):
        corpus("train", ["instruction", "", "output"], rows=9)
    with pytest.raises(ValueError, match=r"dataset\.repo: .* split test, cannot be loaded \(Unknown split"):
        corpus("test", ["instruction", "", "output"])


def test_a_published_set_that_is_not_there_offline_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    corpus = CORPORA["hub"](repo="some/where", revision="main", split="train", columns=["a", "", "b"])
    with pytest.raises(ValueError, match=r"dataset\.repo: some/where at main") as error:
        corpus()
    assert "hf download --repo-type dataset some/where --revision main" in str(error.value)
    assert "dataset=jsonl dataset.path=" in str(error.value)
    assert "\n" not in str(error.value)
