"""The mirror shows what the record says, offline, once, without a word; and it never stops anything."""

import dataclasses
import json
import logging
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cluster_bench import tracking
from cluster_bench.record import Record

BLOCK = 32768
HEADER = 7  # of the file, and of each piece: checksum (4), length (2), kind (1)
WHOLE, LAST = 1, 4


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No account, no settings, no network: a home that is empty."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NETRC", str(tmp_path / "home" / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "home" / "config"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "home" / "cache"))
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "home" / "data"))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")


def a_record(**changes: Any) -> Record:
    record = Record(
        study="main",
        method="cluster_paper",
        model="toy7b",
        dataset="toy_oss",
        seed=1,
        overrides={"selection.ratio": "0.5"},
        config={"seed": 1, "selection": {"kind": "balanced", "ratio": 0.5}, "training": {"clip": None}},
        addresses={"corpus": "aa", "scores": "0123456789abcdef"},
        ranks=4,
        processes=2,
        rows=4000,
        left_out_rows=3,
        overflow_rows=40,
        kept_overflow_rows=30,
        kept_rows=1240,
        corpus_tokens=120_000,
        kept_tokens=30_000,
        steps=120,
        selection_seconds=7.5,
        train_seconds=19.25,
        modelled_train_seconds=10.5,
        scores={"mbpp": 0.75, "humaneval": 0.5},
        stderr={"mbpp": 0.02, "humaneval": 0.04},
        items={"mbpp": 378, "humaneval": 164},
        counts={"humaneval": {"passed": 82, "wrong": 80, "syntax_error": 1, "timeout": 1, "unparsed": 0}},
        protocols={"humaneval": "0-shot, greedy"},
        versions={"lm_eval": "0.4.13"},
        machine={"cpu": "Some CPU", "cores": 2, "torch": "2.13.0"},
    )
    return dataclasses.replace(record, **changes)


def a_tracker(folder: Path, mode: Any = "auto") -> tracking.Wandb:
    return tracking.Wandb(project="cluster-bench", entity=None, mode=mode, folder=folder, timeout_s=30)


def pieces(path: Path) -> Iterator[bytes]:
    """The records of an offline run file: blocks of 32 KiB, each record in one or more pieces."""
    data = path.read_bytes()
    assert data.startswith(b":W&B")
    at, whole = HEADER, b""
    while at + HEADER <= len(data):
        room = BLOCK - at % BLOCK
        if room < HEADER:
            at += room
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        whole += data[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (WHOLE, LAST):
            yield whole
            whole = b""


def read_back(path: Path) -> dict[str, Any]:
    """What an offline run file says: the run's names, config, summary, and the files that go with it."""
    from wandb.proto import wandb_internal_pb2

    found: dict[str, Any] = {"config": {}, "summary": {}, "history": [], "files": [], "exits": []}
    for piece in pieces(path):
        message = wandb_internal_pb2.Record()
        message.ParseFromString(piece)
        match message.WhichOneof("record_type"):
            case "run":
                found["run"] = message.run
                updates, into = message.run.config.update, found["config"]
            case "config":
                updates, into = message.config.update, found["config"]
            case "summary":
                updates, into = message.summary.update, found["summary"]
            case "files":
                found["files"] += [item.path for item in message.files.files]
                continue
            case "history":
                found["history"].append(message.history)
                continue
            case "exit":
                found["exits"] += [message.exit.exit_code]
                continue
            case _:
                continue
        for item in updates:
            into[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
    return found


def runs(folder: Path) -> list[Path]:
    return sorted(folder.glob("cluster-bench/wandb/offline-run-*/*.wandb"))


@pytest.mark.parametrize("mode", ["auto", "offline"])
def test_an_offline_run_holds_config_summary_and_table(
    mode: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    record = a_record()
    a_tracker(tmp_path, mode)(record)
    assert capfd.readouterr() == ("", "")
    (file,) = runs(tmp_path)
    found = read_back(file)
    run = found["run"]
    assert (run.run_id, run.project) == (tracking.run_id(record), "cluster-bench")
    assert (run.display_name, run.run_group) == ("toy_oss-toy7b-cluster_paper-seed1", "main")
    assert set(run.tags) == {"main", "cluster_paper", "toy7b", "toy_oss", "seed1"}
    assert found["config"]["experiment"] == record.config
    assert found["config"]["run"]["addresses"] == record.addresses
    assert found["config"]["run"]["machine"] == record.machine
    assert found["config"]["run"]["overrides"] == record.overrides
    summary = found["summary"]
    assert (summary["score/mbpp"], summary["stderr/humaneval"], summary["average"]) == (0.75, 0.04, 0.625)
    assert (summary["train_seconds"], summary["total_seconds"], summary["kept_rows"]) == (19.25, 26.75, 1240)
    table = summary["benchmarks"]
    assert (table["_type"], table["nrows"]) == ("table-file", 2)
    content = json.loads((file.parent / "files" / table["path"]).read_text())
    assert content["columns"] == list(tracking.COLUMNS)
    assert content["data"] == [
        ["humaneval", 0.5, 0.04, 164, 82, 80, 1, 1, 0, "0-shot, greedy"],
        ["mbpp", 0.75, 0.02, 378, None, None, None, None, None, None],
    ]
    assert table["path"] in found["files"]
    assert (found["history"], found["exits"]) == ([], [0])


def test_mirrored_again_it_is_the_same_run(tmp_path: Path) -> None:
    tracker = a_tracker(tmp_path)
    tracker(a_record())
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.wandb")}
    tracker(a_record())
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.wandb")} == before
    tracker(a_record(study="other"))  # the same scores, told anew
    (file,) = runs(tmp_path)
    assert read_back(file)["run"].run_group == "other"
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.wandb")}
    for study in ("main", "other"):
        tracker(a_record(study=study))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.wandb")} == before


def test_a_try_that_was_killed_leaves_no_second_run(tmp_path: Path) -> None:
    leftover = (
        tmp_path / "cluster-bench" / "wandb" / f"offline-run-20260101_000000-{tracking.run_id(a_record())}"
    )
    leftover.mkdir(parents=True)
    (leftover / "half.wandb").write_bytes(b":W&B")
    a_tracker(tmp_path)(a_record())
    assert not leftover.exists()
    assert len(runs(tmp_path)) == 1


def test_what_is_missing_is_left_out() -> None:
    record = a_record(scores={"mbpp": float("nan")}, stderr={}, protocols={})
    summary = tracking.summary(record)
    assert not {"score/mbpp", "score/humaneval", "average", "stderr/mbpp"} & set(summary)
    assert tracking.rows(record)[1] == ("mbpp", None, None, 378, *[None] * 5, None)
    assert "average" not in tracking.summary(a_record(scores={}))
    assert "average" not in tracking.summary(a_record(scores={"mbpp": 0.5}))  # humaneval was asked as well


def test_a_failure_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    for record, tracker in (
        (a_record(), a_tracker(blocked)),
        (a_record(addresses={}), a_tracker(tmp_path)),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            tracker(record)
        assert "toy_oss toy7b cluster_paper seed1 was not mirrored" in caplog.text
    assert not runs(tmp_path)


def test_a_run_is_finished_even_when_logging_fails(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import wandb

    with caplog.at_level(logging.WARNING):
        a_tracker(tmp_path)(a_record(scores={"\ud800": 0.5}))  # no UTF-8 has this
    assert "UnicodeEncodeError" in caplog.text
    assert wandb.run is None
    (file,) = runs(tmp_path)
    assert read_back(file)["exits"] == [1]
    a_tracker(tmp_path)(a_record())
    assert len(runs(tmp_path)) == 1


def test_online_without_a_key_asks_nothing_and_goes_offline(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", _never)
    monkeypatch.setattr("getpass.getpass", _never)
    with caplog.at_level(logging.WARNING):
        a_tracker(tmp_path, "online")(a_record())
    assert "online needs WANDB_API_KEY" in caplog.text
    assert len(runs(tmp_path)) == 1


def test_a_server_that_is_not_there_costs_its_timeout(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    tracker = dataclasses.replace(a_tracker(tmp_path), timeout_s=1)
    start = time.monotonic()
    with caplog.at_level(logging.WARNING):
        tracker(a_record())
    assert time.monotonic() - start < 20
    assert "was not mirrored" in caplog.text
    assert not list(tmp_path.glob("*/mirrored/*"))


def _never(*_: object) -> str:
    raise AssertionError("nobody is there to ask")


@pytest.mark.parametrize(("variable", "made"), [("offline", 1), ("disabled", 0)])
def test_wandb_mode_is_respected(
    variable: str, made: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", variable)
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    a_tracker(tmp_path)(a_record())
    assert len(runs(tmp_path)) == made


def test_names_are_wandbs() -> None:
    assert tracking.run_id(a_record()) == tracking.run_id(a_record(seed=2, study="other"))
    assert tracking.run_id(a_record()) != tracking.run_id(a_record(addresses={"scores.v1": "another"}))
    assert all(0 < len(tag) <= 64 for tag in tracking.tags(a_record(dataset="d" * 100)))


def test_settings_are_refused_by_name() -> None:
    with pytest.raises(ValidationError, match="timeout_s 0 is less than 1"):
        tracking.Wandb(project="p", entity=None, mode="auto", folder=Path("x"), timeout_s=0)
    with pytest.raises(ValidationError, match="mode"):
        a_tracker(Path("x"), "on")
    assert set(tracking.TRACKERS) == {"none", "wandb"}


def test_off_by_default_and_light(tmp_path: Path) -> None:
    tracking.NoTracking()(a_record())
    assert not list(tmp_path.rglob("*.wandb"))
    code = "import sys, cluster_bench.tracking, cluster_bench.report; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"wandb", "torch", "pandas", "matplotlib", "rich"} & set(loaded.stdout.split())
