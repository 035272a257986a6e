"""The store's promises: complete or absent, made once, addressed by every field, hits need no parents."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from cluster_bench.artifacts import Clusters, Features, Machine, Model, Selection, Workspace
from cluster_bench.selection import SELECTORS
from cluster_bench.store import Node, Store, job, node


@dataclass(frozen=True)
class Ones:
    n: int
    note: str = ""

    def __call__(self, work: Workspace) -> Features:
        ones = np.ones((self.n, 2), dtype=np.float32)
        return Features(ones, np.ones(self.n, dtype=np.float32), 0.0)


@dataclass(frozen=True)
class Fails:
    def __call__(self, work: Workspace) -> Features:
        raise RuntimeError("out of memory")


@dataclass(frozen=True)
class FirstRows:
    m: int

    def __call__(self, features: Features) -> Selection:
        return Selection(np.arange(self.m), uses_features=True)


def ones(n: int, stage: str = "features.v1", note: str = "") -> Node[Features]:
    return job(stage, Features, Ones(n, note))


def test_address_is_stable():
    """Golden addresses: if one changes, every stored artefact has been orphaned."""
    assert ones(3).key == "5d1ab8b2f8d1c155"
    assert node("selection.v1", Selection, FirstRows(2), ones(3)).key == "6c9f10c89a9594c7"


def test_every_field_version_and_parent_counts():
    nodes = [ones(1), ones(2), ones(1, "features.v2"), ones(1, note="x")]
    nodes += [node("s.v1", Selection, FirstRows(1), parent) for parent in nodes]
    assert len({n.key for n in nodes}) == 8


def test_nested_methods_count_too():
    from cluster_bench.config import build

    def address(ratio: float) -> str:
        make = build(
            "selection",
            SELECTORS,
            {"kind": "random", "match": "rows", "ratio": ratio, "keep": "far", "seed": 0},
        )
        return Node("selection.v1", Selection, make, ()).key

    assert address(1) == address(1.0) != address(0.5)


def test_second_get_loads(store, monkeypatch):
    first = store.get(ones(3))
    monkeypatch.setattr(Ones, "__call__", lambda self, work: pytest.fail("made twice"))
    np.testing.assert_array_equal(store.get(ones(3)).values, first.values)


def test_hit_does_not_need_its_parents(store):
    features = ones(3)
    rows = node("selection.v1", Selection, FirstRows(2), features)
    store.get(rows)
    shutil.rmtree(store.path(features))
    assert store.get(rows).rows.tolist() == [0, 1]
    assert not store.has(features)


def test_failure_is_not_stored_and_can_be_tried_again(store, monkeypatch):
    broken = job("features.v1", Features, Fails())
    for _ in range(2):
        with pytest.raises(RuntimeError, match="out of memory"):
            store.get(broken)
        assert not store.has(broken)


def test_record_says_how_when_and_on_what(store):
    rows = node("selection.v1", Selection, FirstRows(2), ones(3))
    store.get(rows)
    record = store.record(rows)
    assert record["parents"] == [ones(3).key]
    assert record["spec"] == {"kind": "FirstRows", "m": 2}
    assert record["seconds"] >= 0
    assert record["machine"]["cores"] >= 1


@dataclass(frozen=True)
class CountsToThree:
    def __call__(self, features: Features, work: Workspace) -> Model:
        steps = len(list(work.folder.glob("step_*")))
        while steps < 3:
            steps += 1
            (work.folder / f"step_{steps}").touch()
            if steps == 2 and not (work.folder / "crashed").exists():
                (work.folder / "crashed").touch()
                raise RuntimeError("preempted")
        return Model(work.folder / "step_3", steps)


def test_a_job_picks_up_where_it_stopped(store):
    model = job("model.v1", Model, CountsToThree(), ones(1))
    with pytest.raises(RuntimeError, match="preempted"):
        store.get(model)
    assert not store.has(model)
    assert store.get(model).parameters == 3
    assert store.get(model).weights == store.path(model) / "step_3"


def test_the_machine_reaches_the_job_but_no_address(tmp_path):
    @dataclass(frozen=True)
    class Asks:
        def __call__(self, work: Workspace) -> Model:
            return Model(work.folder / "weights", work.machine.processes)

    asks = job("model.v1", Model, Asks())
    assert Store(tmp_path, Machine(processes=7)).get(asks).parameters == 7
    assert Store(tmp_path, Machine(processes=1)).has(asks)


def test_arrays_come_back_as_they_were(store):
    clusters = Clusters(
        np.array([0, -1, 1]),
        np.eye(2, dtype=np.float32),
        np.array([0.5, 0, 0.25], dtype=np.float32),
        np.array([True, False, False]),
        1.5,
    )

    @dataclass(frozen=True)
    class Gives:
        def __call__(self, features: Features) -> Clusters:
            return clusters

    back = store.get(node("clusters.v1", Clusters, Gives(), ones(1)))
    for name, value in vars(clusters).items():
        np.testing.assert_array_equal(getattr(back, name), value)
        assert getattr(getattr(back, name), "dtype", None) == getattr(value, "dtype", None)
    assert back.sizes.tolist() == [1, 1]


def test_a_store_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ValueError, match=r"store: .*file cannot be written .*; set store=FOLDER"):
        Store(tmp_path / "file").get(ones(1))


@dataclass(frozen=True)
class CountsItsCalls:
    log: str

    def __call__(self, work: Workspace) -> Features:
        with Path(self.log).open("a") as log:
            log.write("made\n")
        time.sleep(0.3)
        return Ones(4)(work)


def _get_child(root: Path, n: int) -> int:
    shared = job("features.v1", Features, CountsItsCalls(str(root / "log")))
    return len(Store(root).get(node("selection.v1", Selection, FirstRows(n), shared)).rows)


def test_jobs_that_share_a_parent_make_it_once(tmp_path):
    with get_context("spawn").Pool(2) as pool:
        assert pool.starmap(_get_child, [(tmp_path, 1), (tmp_path, 2)]) == [1, 2]
    assert (tmp_path / "log").read_text() == "made\n"


SLOW = """
import sys, time
from dataclasses import dataclass
from pathlib import Path
import numpy as np
from cluster_bench.artifacts import Features, Workspace
from cluster_bench.store import Store, job

@dataclass(frozen=True)
class Slow:
    def __call__(self, work: Workspace) -> Features:
        (work.folder / "half").write_text("begun")
        (work.folder.parent / "begun").touch()
        time.sleep(float(sys.argv[2]))
        return Features(np.ones((2, 2), np.float32), np.ones(2, np.float32), 0.0)

node = job("features.v1", Features, Slow())
store = Store(Path(sys.argv[1]))
print(store.get(node).values.sum(), store.path(node))
"""


def test_killed_while_making_leaves_nothing_at_the_address(tmp_path):
    victim = subprocess.Popen([sys.executable, "-c", SLOW, str(tmp_path), "60"])
    while not (tmp_path / "features.v1/begun").exists():
        assert victim.poll() is None
        time.sleep(0.02)
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    (left,) = (tmp_path / "features.v1").glob("*.partial")
    assert not left.with_suffix("").exists()
    again = subprocess.run(
        [sys.executable, "-c", SLOW, str(tmp_path), "0"], capture_output=True, text=True, check=True
    )
    assert again.stdout.startswith("4.0")
    assert left.with_suffix("").is_dir()
