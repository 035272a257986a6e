"""Benchmark items: files and hub forms of all eight, what `make data` keeps, and what bad input is told.

The rows in data/benchmarks were written for these tests, in the published columns.
"""

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hub import hub

from cluster_bench.artifacts import Benchmarks, Checkpoint, Machine, Workspace
from cluster_bench.benchmarks import BENCHMARKS as SOURCES
from cluster_bench.benchmarks.fetch import Source, fetch
from cluster_bench.benchmarks.published import FILES, PUBLISHED, pubmedqa_test_ids
from cluster_bench.benchmarks.rows import content, digest, read
from cluster_bench.config import build
from cluster_bench.scoring.benchmarks import BENCHMARKS, Form
from cluster_bench.scoring.execution import Program, Sandbox
from cluster_bench.scoring.items import items
from cluster_bench.scoring.soundness import ReferenceSolutions

FOLDER = Path(__file__).parent / "data/benchmarks"
ON_HUB = [name for name, published in PUBLISHED.items() if published.repo]

Row = dict[str, Any]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Benchmarks:
    """All eight fixtures as a run gets them."""
    folder = tmp_path_factory.mktemp("items")
    return SOURCES["local"](folder=str(FOLDER), names=tuple(FILES))(Workspace(folder))


def test_the_table_covers_what_scoring_needs() -> None:
    assert PUBLISHED.keys() == BENCHMARKS.keys()
    for name, benchmark in BENCHMARKS.items():
        assert set(benchmark.columns) <= set(PUBLISHED[name].columns)
        assert bool(PUBLISHED[name].tests) == (benchmark.kind == "code")


def test_every_benchmark_has_a_few_items_of_our_own(local: Benchmarks) -> None:
    for name in FILES:
        read_back = items(name, local.folder / f"{name}.jsonl", Form(), None)
        assert 3 <= local.items[name] == len(read_back) <= 5
    rights = {item.answer for item in items("medmcqa", local.folder / "medmcqa.jsonl", Form("texts"), None)}
    assert rights == {0, 1, 2, 3}


def test_their_canonical_solutions_pass_and_nothing_else_does(local: Benchmarks) -> None:
    right: list[Program] = []
    wrong: list[Program] = []
    for name in ("humaneval", "humaneval_plus", "mbpp", "mbpp_plus"):
        file = local.folder / f"{name}.jsonl"
        for item in items(name, file, Form("texts"), None):
            right.append(Program(item.reference, item.tests, item.defines))
            text = re.sub(r"return .*", "return None", item.reference)
            wrong.append(Program(text, item.tests, item.defines))
    with Sandbox(1, timeout_s=10.0, memory_mb=1024, unsafe=True) as sandbox:
        verdicts = [result.verdict for result in sandbox.run([*right, *wrong])]
    assert verdicts == ["passed"] * len(right) + ["wrong"] * len(wrong)


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A Llama of random weights that reads and writes bytes."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    vocabulary = {sign: n for n, sign in enumerate(["</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    signs = Tokenizer(models.BPE(vocabulary, []))
    signs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    signs.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=signs, eos_token="</s>", pad_token="</s>")
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=1024,
    )
    folder = tmp_path_factory.mktemp("stranger") / "weights"
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Checkpoint(folder, 1, 1, 1.0, 1.0, [1.0], 1)


def test_all_eight_are_scored_end_to_end(
    experiment: Callable[..., Any], local: Benchmarks, stranger: Checkpoint, tmp_path: Path
) -> None:
    scoring = dataclasses.replace(experiment().scoring, benchmarks=tuple(FILES), max_new_tokens=4)
    scores = scoring(stranger, local, Workspace(tmp_path, Machine(unsafe=True)))
    assert scores.items == local.items
    assert scores.values.keys() == FILES.keys()
    assert all(0 <= value <= 1 for value in scores.values.values())
    assert scores.values["humaneval"] == 0  # four random bytes


def many(name: str) -> list[Row]:
    """As many rows as were published, made of ours, in their order on the hub."""
    published, ours = PUBLISHED[name], read(FOLDER / FILES[name])
    rows = [dict(ours[n % len(ours)]) for n in range(published.items)]
    first = 11 if name == "mbpp" else 0
    ids = sorted(pubmedqa_test_ids())
    for n, row in enumerate(rows):
        if published.id:
            row[published.id] = ids[n] if name == "pubmedqa" else type(row[published.id])(first + n)
    return rows


def nested(row: Row) -> Row:
    """A PubMedQA row as it is on the hub."""
    return {
        "pubid": int(row["PUBMED_ID"]),
        "question": row["QUESTION"],
        "context": {"contexts": row["CONTEXTS"], "labels": row["LABELS"], "meshes": ["Soap"]},
        "long_answer": row["LONG_ANSWER"],
        "final_decision": row["final_decision"],
    }


def repository(name: str, rows: list[Row], copies: Path) -> None:
    """A copy of the benchmark's repository, as `hf download` leaves it: parquet files, or plain JSON."""
    from datasets import Dataset

    published, folder = PUBLISHED[name], copies / PUBLISHED[name].repo
    if name == "medqa":  # plain files and no word of them
        folder.mkdir(parents=True)
        for split in ("train", "dev", "test"):
            (folder / f"{split}.json").write_bytes(content(rows if split == "test" else rows[:2]))
        return
    each = -(-len(rows) // len(published.configs))
    told = []
    for n, config in enumerate(published.configs):
        part = rows[n * each : (n + 1) * each]
        file = f"{config or 'data'}/{published.split}-00000-of-00001.parquet"
        (folder / file).parent.mkdir(parents=True)
        Dataset.from_list(part).to_parquet(folder / file)
        told += [f"- config_name: {config or 'default'}", "  data_files:", f"  - split: {published.split}"]
        told += [f"    path: {file}"]
    (folder / "README.md").write_text("\n".join(["---", "configs:", *told, "---", ""]))


def test_the_hubs_own_clients_fetch_all_eight_at_their_pins(tmp_path: Path) -> None:
    """Over HTTP, from a hub on this machine: `make data` keeps what `benchmarks=hub` reads, and it stays."""
    for name in ON_HUB:
        rows = many(name)
        repository(name, [nested(row) for row in rows] if name == "pubmedqa" else rows, tmp_path / "hub")
    command = [sys.executable, "-m", "cluster_bench.benchmarks", "--folder", str(tmp_path / "data")]
    (tmp_path / "items").mkdir()
    reads = (
        "from pathlib import Path; from cluster_bench.artifacts import Workspace;"
        "from cluster_bench.config import METHODS, build; import json, sys;"
        "fields = json.loads(sys.argv[1]); made = build('benchmarks', METHODS['benchmarks'], fields);"
        "print(json.dumps(made(Workspace(Path(sys.argv[2]))).sha256))"
    )
    with hub(tmp_path / "hub") as (address, asked):
        here = {**os.environ, "HF_ENDPOINT": address, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path)}
        fetched = subprocess.run(command, env=here, capture_output=True, text=True, check=True)
        known = json.loads((tmp_path / "data/fetched.json").read_text())
        pins = {name: known[name]["commit"] for name in ON_HUB}
        fields = {"kind": "hub", "names": [*FILES], "revision": pins}
        stage = [sys.executable, "-c", reads, json.dumps(fields), str(tmp_path / "items")]
        read_by_stage = subprocess.run(stage, env=here, capture_output=True, text=True, check=True)
    assert json.loads(read_by_stage.stdout) == {name: known[name]["sha256"] for name in FILES}
    assert all(re.fullmatch("[0-9a-f]{40}", pin) and pin in fetched.stdout for pin in pins.values())
    assert all(f"/{PUBLISHED[name].repo}/resolve/{pin}/" in " ".join(asked) for name, pin in pins.items())
    again = subprocess.run(command, env=here, capture_output=True, text=True)  # that hub is gone
    assert (again.returncode, again.stdout) == (0, fetched.stdout)


@pytest.mark.parametrize("name", ON_HUB)
def test_the_hubs_form_becomes_a_local_file(name: str, tmp_path: Path, monkeypatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    rows = many(name)
    raw = [nested(row) for row in rows] if name == "pubmedqa" else rows
    if name == "pubmedqa":  # the labelled thousand: every other row is not of the test split
        raw = [one for n, row in enumerate(raw) for one in (row, {**row, "pubid": n + 1})]
    repository(name, raw, tmp_path / "copies")
    found = fetch(Source(name, copies=tmp_path / "copies"), tmp_path / "data")
    file = tmp_path / "data" / FILES[name]
    assert read(file) == rows
    assert (found.items, found.sha256) == (PUBLISHED[name].items, digest(file.read_bytes()))
    local = SOURCES["local"](folder=str(file.parent), names=(name,))
    assert local.sha256 == {name: found.sha256}  # so what is printed can be pinned
    made = local(Workspace(tmp_path))
    assert len(items(name, tmp_path / f"{name}.jsonl", Form(), None)) == made.items[name] == len(rows)


def test_half_a_file_is_not_what_was_published(tmp_path: Path) -> None:
    (tmp_path / FILES["medqa"]).write_bytes(content(many("medqa")[:-1]))
    with pytest.raises(ValueError, match=r"medqa_4options\.jsonl: 1272 items for medqa, where 1273") as error:
        fetch(Source("medqa", copies=tmp_path), tmp_path / "data")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "data").exists()


def test_what_is_there_is_not_fetched_again_and_what_has_changed_is(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / FILES["mbpp"]).write_bytes(content(many("mbpp")))
    found = fetch(Source("mbpp", copies=tmp_path / "raw"), tmp_path)
    record = json.loads((tmp_path / "fetched.json").read_text())
    record["mbpp"]["source"] = "google-research-datasets/mbpp@main"  # as if it had come from there
    (tmp_path / "fetched.json").write_text(json.dumps(record))
    again = fetch(Source("mbpp", "main", sha256=found.sha256), tmp_path)  # there is no network
    assert (again.sha256, again.items) == (found.sha256, 500)
    for changed in (Source("mbpp", "other"), Source("mbpp", "main", sha256="0" * 64)):
        with pytest.raises(ValueError, match=r"google-research-datasets/mbpp at \w+ cannot be loaded"):
            fetch(changed, tmp_path)
    (tmp_path / FILES["mbpp"]).write_bytes(b"half")
    with pytest.raises(ValueError, match=r"google-research-datasets/mbpp at main cannot be loaded"):
        fetch(Source("mbpp", "main"), tmp_path)


def test_a_pinned_hash_that_does_not_fit_leaves_the_folder_alone(tmp_path: Path) -> None:
    found = fetch(Source("humaneval"), tmp_path)
    with pytest.raises(ValueError, match=rf"sha256\.humaneval: the items are {found.sha256}, not 0000"):
        fetch(Source("humaneval", sha256="0000"), tmp_path)
    assert digest((tmp_path / FILES["humaneval"]).read_bytes()) == found.sha256
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fetched.json", "humaneval.jsonl"]


def test_make_data_prints_what_it_got_and_says_what_it_could_not(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cluster_bench.benchmarks", "--folder", str(tmp_path)]
    one = subprocess.run([*command, "humaneval"], capture_output=True, text=True, check=True)
    (line,) = [line for line in one.stdout.splitlines() if line.startswith("humaneval ")]
    assert line.split()[1:3] == ["164", digest((tmp_path / FILES["humaneval"]).read_bytes())]
    all_eight = subprocess.run(command, capture_output=True, text=True)
    assert all_eight.returncode == 2
    assert line in all_eight.stdout
    said = all_eight.stderr.splitlines()
    assert len(said) == len(ON_HUB)
    for name, error in zip(ON_HUB, said, strict=True):
        start = rf"error: benchmarks: {PUBLISHED[name].repo} at [0-9a-f]{{40}} cannot be loaded"
        assert re.match(start, error)
        assert "scoring.data=FOLDER" in error
    unknown = subprocess.run([*command, "gsm8k"], capture_output=True, text=True)
    assert (unknown.returncode, "'gsm8k' is not one of" in unknown.stderr) == (2, True)


def test_without_a_network_the_hub_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    hub = SOURCES["hub"](names=("medqa",), revision={"medqa": "main"})
    with pytest.raises(ValueError, match="GBaker/MedQA-USMLE-4-options-hf at main cannot be loaded") as error:
        hub(Workspace(tmp_path))
    assert "`make data`" in str(error.value)
    assert "\n" not in str(error.value)


def test_the_hub_needs_a_revision_and_only_its_own_count(tree: Callable[..., dict[str, Any]]) -> None:
    fields = {name: value for name, value in tree("benchmarks=hub")["benchmarks"].items() if name != "kind"}
    names = tuple(fields["names"])
    pinned = vars(SOURCES["hub"](**fields))["revision"]
    assert {*pinned} == {*names} - {"humaneval"}
    assert all(re.fullmatch("[0-9a-f]{40}", commit) for commit in fields["revision"].values())
    other = {**fields["revision"], "medqa": "another"}
    assert SOURCES["hub"](**fields) == SOURCES["hub"](**{**fields, "revision": other})
    with pytest.raises(ValueError, match=r"revision\.mbpp: missing; give a commit of google-research"):
        SOURCES["hub"](names=("mbpp",), revision={"medqa": "main"})
    with pytest.raises(ValueError, match="'mbbp' is not one of"):
        SOURCES["hub"](names=("mbpp",), revision={"mbpp": "main", "mbbp": "main"})


def without(row: Row, column: str) -> Row:
    return {name: value for name, value in row.items() if name != column}


@pytest.mark.parametrize(
    ("name", "spoil", "says"),
    [
        ("medqa", lambda rows: [], "line 1: empty; write one item"),
        ("medqa", lambda rows: [rows[0], "{'id': 2}"], "line 2: not JSON (Expecting property name"),
        ("medqa", lambda rows: [rows[0], "", rows[1]], "line 2: empty"),
        ("medqa", lambda rows: [[1]], "line 1: not an object with columns"),
        (
            "medqa",
            lambda rows: [rows[0], {**without(rows[1], "label"), "lable": 1}],
            "line 2: no column 'label' ('lable' is near); medqa needs sent1,",
        ),
        ("mmlu_medical", lambda rows: [without(rows[0], "choices")], "line 1: no column 'choices'"),
        ("humaneval", lambda rows: [{**rows[0], "test": " \n"}], "line 1: the item has no tests in 'test'"),
        ("mbpp", lambda rows: [rows[0], {**rows[1], "test_list": []}], "line 2: the item has no tests in"),
        ("mbpp_plus", lambda rows: [{**rows[0], "test": None}], "line 1: the item has no tests in 'test'"),
        ("medmcqa", lambda rows: [*rows, rows[1]], 'line 5: id "fixture-1" is that of 2 too'),
        ("mbpp", lambda rows: [*rows, rows[0]], "line 5: task_id 11 is that of 1 too"),
    ],
)
def test_bad_rows_are_named_before_anything_is_trained(name: str, spoil, says: str, tmp_path: Path) -> None:
    rows = spoil(read(FOLDER / FILES[name]))
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (tmp_path / FILES[name]).write_text("".join(line + "\n" for line in lines))
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path / FILES[name]}, {says}")) as error:
        build("benchmarks", SOURCES, {"kind": "local", "folder": str(tmp_path), "names": [name]})
    assert "\n" not in str(error.value)


def test_missing_and_changed_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"pubmedqa\.jsonl is missing; `make data` fetches qiaojin/PubMedQA"):
        SOURCES["local"](folder=str(tmp_path), names=("pubmedqa",))
    file = tmp_path / FILES["medqa"]
    file.write_bytes((FOLDER / FILES["medqa"]).read_bytes())
    before = SOURCES["local"](folder=str(tmp_path), names=("medqa",))
    file.write_bytes(file.read_bytes().replace(b"A cold cloth", b"A hot cloth"))
    after = SOURCES["local"](folder=str(tmp_path), names=("medqa",))
    with pytest.raises(ValueError, match=r"medqa_4options\.jsonl has changed") as error:
        SOURCES["local"](folder=str(tmp_path), names=("medqa",), sha256=before.sha256)
    assert before.sha256["medqa"] in str(error.value)
    assert after.sha256["medqa"] in str(error.value)
    with pytest.raises(ValueError, match="has changed since this run was set up"):
        before(Workspace(tmp_path))


def test_humaneval_comes_from_its_package_where_the_folder_has_none(tmp_path: Path) -> None:
    local = SOURCES["local"](folder=str(tmp_path), names=("humaneval",))
    assert local(Workspace(tmp_path)).items == {"humaneval": 164}


@pytest.mark.real
@pytest.mark.skipif("CLUSTER_BENCH_DATA" not in os.environ, reason="needs CLUSTER_BENCH_DATA")
@pytest.mark.parametrize("name", ["humaneval", "mbpp", "medqa", "pubmedqa"])
def test_the_published_files_are_what_make_data_keeps(name: str, tmp_path: Path) -> None:
    """Among these PubMedQA's 500 rows, all of which the table's ids keep."""
    folder = Path(os.environ["CLUSTER_BENCH_DATA"]) / "benchmarks"
    found = fetch(Source(name, copies=folder), tmp_path)
    assert found.items == PUBLISHED[name].items
    assert SOURCES["local"](folder=str(folder), names=(name,)).sha256 == {name: found.sha256}


@pytest.mark.real
@pytest.mark.skipif("CLUSTER_BENCH_HUB" not in os.environ, reason="needs CLUSTER_BENCH_HUB=1 and a network")
def test_the_hub_itself_has_all_eight_at_their_pins(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cluster_bench.benchmarks", "--folder", str(tmp_path / "data")]
    here = {**os.environ, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path)}
    subprocess.run(command, env=here, check=True)
    (tmp_path / "items").mkdir()
    made = SOURCES["local"](folder=str(tmp_path / "data"), names=tuple(FILES))(Workspace(tmp_path / "items"))
    found = ReferenceSolutions(3.0, 4096)(made, Workspace(tmp_path))
    assert "32" in found.failing["humaneval_plus"]  # its test unpacks a number
    assert len(found.failing["humaneval_plus"]) + len(found.failing.get("mbpp_plus", {})) < 10
