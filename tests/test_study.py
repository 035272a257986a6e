"""The whole walk, for real: the smoke study through torchrun with two gloo processes, killed and resumed."""

import csv
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.timeout(600)

TIMES = ("seconds", "processes")  # fields that say how long, not what


def command(folder: Path, *more: str) -> list[str]:
    """The smoke study in a folder of its own."""
    place = [f"store={folder / 'store'}", f"study.results={folder / 'results'}"]
    return [sys.executable, "-m", "cluster_bench", "study=smoke", *place, *more]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("smoke")
    ended = subprocess.run(command(folder), capture_output=True, text=True)
    logs = "".join(path.read_text() for path in folder.glob("store/logs/*.log"))
    assert ended.returncode == 0, ended.stderr + logs
    (folder / "said").write_text(ended.stdout)
    return folder


def test_the_smoke_study_ends_in_a_table_and_a_figure(finished):
    names = {
        "scores.csv",
        "contamination.csv",
        "table.md",
        "table.tex",
        "frontier.svg",
        "frontier.png",
        "README.md",
    }
    assert names <= {path.name for path in (finished / "results").iterdir()}
    with (finished / "results/scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == ["cluster_paper", "full"] or len(rows) == 2
    assert all(float(row["train_seconds"]) > 0 for row in rows)
    assert all(int(row["processes"]) == 2 for row in rows)
    assert "cluster_paper" in (finished / "said").read_text()
    kept = {path.relative_to(finished / "results/items") for path in finished.glob("results/items/*/*")}
    assert kept == {
        Path(f"method={method}/{name}.parquet")
        for method in ("cluster_paper", "full")
        for name in ("humaneval", "humaneval_plus", "mbpp", "mbpp_plus")
    }


def test_cluster_paper_trains_on_fewer_rows_and_pays_for_its_features(finished):
    with (finished / "results/scores.csv").open() as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    ours, full = rows["cluster_paper"], rows["full"]
    assert 0 < int(ours["kept_rows"]) < int(full["kept_rows"]) == int(full["rows"])
    assert float(ours["selection_seconds"]) > 0 == float(full["selection_seconds"])


def test_again_with_everything_cached_makes_nothing_and_is_quick(finished):
    before = contents(finished / "store"), contents(finished / "results")
    start = time.monotonic()
    again = subprocess.run(command(finished), capture_output=True, text=True, check=True)
    seconds = time.monotonic() - start
    assert again.stdout == (finished / "said").read_text()
    assert (contents(finished / "store"), contents(finished / "results")) == before
    assert seconds < 10, "nothing was left to make"


COMPOSED = """
import sys
from cluster_bench.cells import study_tree
tree = study_tree(sys.argv[1:])
print(tree["study"]["name"], tree["launcher"]["kind"], "hydra" in sys.modules)
"""


def composed(folder: Path, *more: str, **environment: str) -> str:
    code = [sys.executable, "-c", COMPOSED, *command(folder, *more)[3:]]
    ended = subprocess.run(
        code, capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    return ended.stdout.strip()


def test_a_study_is_composed_once_for_what_it_is_given_and_what_it_reads(finished):
    assert composed(finished) == "smoke local False", "as when it was made"
    nodes = finished, "launcher=nodes", "launcher.nodes=2", "launcher.node=0"
    assert [composed(*nodes, CLUSTER_BENCH_RUN="a") for _ in range(2)] == [
        "smoke nodes True",
        "smoke nodes False",
    ]
    assert composed(*nodes, CLUSTER_BENCH_RUN="b") == "smoke nodes True"


def test_plan_says_what_is_there(finished):
    said = subprocess.run(command(finished, "plan=true"), capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[0] == "2 runs, 0 to make"


def test_scores_that_look_broken_stop_the_table_until_confirmed(finished):
    """After 40 steps the base model knows nothing: this study's own file confirms its two methods."""
    before = contents(finished / "results")
    refused = subprocess.run(command(finished, "confirmed=[full]"), capture_output=True, text=True)
    assert refused.returncode == 2
    assert "error: scores that look broken:\n  cluster_paper toy_oss seed 0, " in refused.stderr
    assert refused.stderr.count("item ") >= 3
    assert refused.stderr.rstrip().endswith("confirm with confirmed=[full,cluster_paper]")
    assert not refused.stdout
    assert contents(finished / "results") == before


STAGES = ["model.v1", "training.v1", "scores.v3"]


def test_killed_in_any_stage_it_ends_with_the_same_bytes(finished, tmp_path):
    """kill -9 to the study while each of the long stages is at work; nothing may survive or differ."""
    for stage in STAGES:
        running = subprocess.Popen(command(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not list((tmp_path / "store" / stage).glob("*.partial")):
            assert running.poll() is None, f"ended before {stage} began"
            time.sleep(0.02)
        time.sleep(0.3)
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
        deadline = time.monotonic() + 15
        while survivors(tmp_path):
            assert time.monotonic() < deadline, survivors(tmp_path)
            time.sleep(0.1)
    subprocess.run(command(tmp_path), check=True, capture_output=True)
    assert contents(tmp_path / "store") == contents(finished / "store")


def survivors(folder: Path) -> list[str]:
    def mine(process: psutil.Process) -> bool:
        try:
            return process.status() != "zombie" and str(folder) in " ".join(process.cmdline())
        except psutil.Error:
            return False

    return [str(p) for p in psutil.process_iter() if mine(p)]


def contents(folder: Path) -> dict[str, str]:
    """Hash of every file of every finished artefact, measured seconds and logs apart."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".lock"]
    skip = ("answers", "logs", "hydra", "studies", "record.json", "torchrun.log", "timing.jsonl")
    kept = [path for path in files if not any(part in skip for part in path.relative_to(folder).parts)]
    return {str(path.relative_to(folder)): _hash(path, folder) for path in kept}


def _hash(path: Path, folder: Path) -> str:
    content = path.read_bytes().replace(str(folder).encode(), b"")
    if path.suffix in (".json", ".jsonl"):
        lines = content.decode().splitlines() if path.suffix == ".jsonl" else [content.decode()]
        content = json.dumps([_untimed(json.loads(line)) for line in lines]).encode()
    return hashlib.sha256(content).hexdigest()


def _untimed(value: object) -> object:
    if isinstance(value, dict):
        return {k: _untimed(v) for k, v in value.items() if not str(k).endswith(TIMES)}
    return [_untimed(v) for v in value] if isinstance(value, list) else value
