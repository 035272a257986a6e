"""Launchers: two machines played by two agents on one, two runs at once, ports, and SLURM's scripts."""

import json
import os
import pickle
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from safetensors.numpy import load_file
from test_training import loop, trained

from cluster_bench.artifacts import Allocation, Machine, Model, Tokens
from cluster_bench.config import build
from cluster_bench.launch import LAUNCHERS
from cluster_bench.launch.meeting import lead, listening
from cluster_bench.launch.nodes import Nodes
from cluster_bench.store import Store
from cluster_bench.training.failure import what_failed
from cluster_bench.training.follow import follow

pytestmark = pytest.mark.timeout(300)


Given = tuple[Tokens, Model, Allocation]


@pytest.fixture
def given(tiny_tokens: Tokens, tiny_model: Model) -> Given:
    """What a training gets: six rows on each of four ranks."""
    weight = np.repeat(np.array([1.7, 1.0, 0.8, 0.5], np.float32), 6)
    return tiny_tokens, tiny_model, Allocation(np.arange(24), np.repeat(np.arange(4), 6), weight, 4)


def place(folder: Path, node: int, **changes: Any) -> Nodes:
    """One of two machines, both of them this one."""
    told = {"run": "run", "address": "127.0.0.1", "port": 0, "folder": str(folder / "nodes"), "wait_s": 60}
    return build("launcher", LAUNCHERS, {"kind": "nodes", "nodes": 2, "node": node, **told, **changes})


FOLLOW = """
import pickle, sys
from pathlib import Path
from cluster_bench.training.follow import follow
follow(*pickle.loads(Path(sys.argv[1]).read_bytes()))
"""


def start(code: str, call: Any, path: Path, **environment: str) -> "subprocess.Popen[str]":
    path.write_bytes(pickle.dumps(call))
    return subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path.cwd()), **environment},
    )


def processes_of(folder: Path) -> list[str]:
    def mine(process: psutil.Process) -> bool:
        try:
            return process.status() != "zombie" and str(folder) in " ".join(process.cmdline())
        except psutil.Error:
            return False

    return [str(p) for p in psutil.process_iter() if p.pid != os.getpid() and mine(p)]


def is_soon(true: Callable[[], Any], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


TRAIN = """
import pickle, shutil, sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from cluster_bench.artifacts import Allocation, Checkpoint, Model, Tokens
from cluster_bench.launch.meeting import lead
from cluster_bench.store import Store, job, node

nodes, store, loop, (tokens, model, allocation) = pickle.loads(Path(sys.argv[1]).read_bytes())

@dataclass(frozen=True)
class GivenTokens:
    def __call__(self):
        return tokens

@dataclass(frozen=True)
class GivenModel:
    def __call__(self, work):
        shutil.copytree(model.weights, work.folder / "weights")
        return Model(work.folder / "weights", model.parameters)

@dataclass(frozen=True)
class GivenAllocation:
    def __call__(self):
        return allocation

parents = node("t.v1", Tokens, GivenTokens()), job("m.v1", Model, GivenModel())
allocated = node("a.v1", Allocation, GivenAllocation())
with lead(nodes) if nodes else nullcontext():
    made = store.get(job("training.v1", Checkpoint, loop, *parents, allocated))
Path(sys.argv[1]).with_suffix(".made").write_text(str(made.weights / "model.safetensors"))
"""


def test_a_run_on_two_nodes_and_another_beside_it_give_the_bytes_of_each_alone(given, tmp_path):
    """Two agents of two processes each, and a run of two processes on the same machine and store, at once."""
    one = place(tmp_path, 0)
    machines = {3: Machine(processes=4, nodes=2, meeting=str(one.meeting)), 4: Machine(processes=2)}
    methods = {seed: loop(dtype="float32", seed=seed) for seed in machines}
    runs = [start(FOLLOW, (place(tmp_path, 1),), tmp_path / "second")]
    for seed, machine in machines.items():
        nodes = one if machine.nodes > 1 else None
        call = (nodes, Store(tmp_path / "store", machine), methods[seed], given)
        runs.append(start(TRAIN, call, tmp_path / f"{seed}"))
    for run in runs:
        said = run.communicate(timeout=240)[1]
        assert run.returncode == 0, said
    assert not processes_of(tmp_path)
    made = {seed: load_file(Path((tmp_path / f"{seed}.made").read_text())) for seed in machines}
    for seed, weights in made.items():
        alone, _ = trained(
            *given, tmp_path / f"alone{seed}", machines[seed].processes, dtype="float32", seed=seed
        )
        assert all(np.array_equal(weights[name], alone[name]) for name in alone)
    assert any(not np.array_equal(made[3][name], made[4][name]) for name in made[3])


BUSY = """
import os, signal, sys, traceback
from pathlib import Path
import torch
import torch.distributed as dist
from cluster_bench.machine import die_with_parent

die_with_parent(int(os.environ["CLUSTER_BENCH_PARENT"]), signal.SIGKILL)
folder, rank = Path(sys.argv[1]).parent, os.environ["RANK"]
(folder / f"process_{rank}.pid").write_text(str(os.getpid()))
try:
    dist.init_process_group("gloo")
    while True:
        dist.all_reduce(torch.ones(1))
        (folder / f"at_{rank}").touch()
except BaseException:
    (folder / f"process_{rank}.error").write_text(traceback.format_exc())
    raise
"""
ENDLESS = """
import sys
from pathlib import Path
from cluster_bench.launch.meeting import lead
from cluster_bench.training.torchrun import torchrun
import pickle
nodes, request = pickle.loads(Path(sys.argv[1]).read_bytes())
with lead(nodes):
    torchrun("busy", request, 2, 1, lambda: None, str(nodes.meeting))
"""


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_agent_ends_every_process_on_both_nodes_and_its_node_is_named(tmp_path, victim):
    (tmp_path / "busy.py").write_text(BUSY)
    path = {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path.cwd())])}
    request = tmp_path / "work/request.json"
    request.parent.mkdir()
    machines = [
        start(ENDLESS, (place(tmp_path, 0), request), tmp_path / "first", **path),
        start(FOLLOW, (place(tmp_path, 1),), tmp_path / "second", **path),
    ]
    running = is_soon(lambda: len(list(request.parent.glob("at_*"))) == 2, within_s=120)
    if running:
        below = psutil.Process(machines[victim].pid).children(recursive=True)
        agents = [process for process in below if process.cmdline()[0].startswith("torchrun busy")]
        agents[0].kill()  # the parent of the workers
    killed = time.monotonic()
    said = [machine.communicate(timeout=60)[1] for machine in machines]
    assert running, said
    gone = is_soon(lambda: not processes_of(tmp_path), within_s=killed + 10 - time.monotonic())
    assert gone, processes_of(tmp_path)
    assert f"node {victim} (127.0.0.1): torchrun was ended by SIGKILL" in said[0]
    assert "node 0 (127.0.0.1) failed: RuntimeError" in said[1]


def test_a_port_in_use_is_one_line_before_anything_starts(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        says = rf"launcher.port: {port} on .*: address already in use; launcher.port=0"
        with pytest.raises(ValueError, match=says), lead(place(tmp_path, 0, port=port)):
            pytest.fail("it began")
    with lead(place(tmp_path, 0, port=port)), listening(port):
        pass


def test_two_runs_of_one_name_do_not_meet(tmp_path):
    says = r"launcher.run: 'run' is led by another"
    with lead(place(tmp_path, 0)), pytest.raises(ValueError, match=says), lead(place(tmp_path, 0)):
        pytest.fail("it began")
    with lead(place(tmp_path, 0)):
        pass


def test_a_follower_is_told_how_node_0_failed_and_does_not_wait_for_ever(tmp_path):
    with pytest.raises(RuntimeError, match=r"node 0 of run 'run' did not come within 0.3 s"):
        follow(place(tmp_path, 1, wait_s=0.3))
    second = start(FOLLOW, (place(tmp_path, 1),), tmp_path / "second")
    with suppress(OSError), lead(place(tmp_path, 0)):
        assert is_soon((place(tmp_path, 0).meeting / "node_1.json").exists, 60)
        time.sleep(1.5)  # it has seen a sign of life
        raise OSError("no space left")
    assert "node 0 (127.0.0.1) failed: OSError: no space left" in second.communicate(timeout=30)[1]


def test_what_failed_names_the_silent_node_and_the_killed_process(tmp_path):
    assert "node 1 (b) has gone silent" in what_failed(tmp_path, {"node 0 (a)": 1, "node 1 (b)": None})
    table = "Root Cause (first observed failure):\n  rank      : 3 (local_rank: 1)\n  exitcode  : -9 (pid: 7)"
    (tmp_path / "torchrun_1.log").write_text(table)
    said = what_failed(tmp_path, {"node 0 (a)": 1, "node 1 (b)": 1})
    assert "process 3 on node 1 (b) was ended by SIGKILL" in said


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"nodes": 1}, "launcher: nodes must be 2 or more, got 1; set launcher.nodes or CLUSTER_BENCH_NODES"),
        ({"node": -1}, "launcher: node must be 0 to 1, another on each machine, got -1; set launcher.node"),
        ({"run": ""}, "launcher: run must be a name .* got ''; set launcher.run or CLUSTER_BENCH_RUN"),
        ({"prot": 1}, "launcher.prot: Nodes has no such field; did you mean 'port'?"),
    ],
)
def test_bad_places_are_refused(tmp_path, changes, says):
    with pytest.raises(ValueError, match=says):
        place(tmp_path, **{"node": 0, **changes})


def test_no_launcher_is_in_any_address(tree, experiment):
    from cluster_bench.pipeline import walk

    here = walk(experiment()).scores.key
    many = ["launcher=nodes", "launcher.nodes=2", "launcher.node=1", "launcher.run=a", "hardware.processes=2"]
    assert walk(experiment(*many)).scores.key == walk(experiment("launcher=slurm")).scores.key == here


WORLD = ["hardware=ranks2", "hardware.processes=2", "model.steps=2", "dataset.rows=40", "benchmarks.items=2"]
SRUN = """#!/bin/bash
shift  # --kill-on-bad-exit
for node in 0 1; do SLURM_NODEID=$node "$@" & done
trap 'kill $(jobs -p); wait; exit 143' TERM
wait -n && wait -n
"""
SCONTROL = """#!/bin/bash
[ "$1" = requeue ] && echo "requeue $2" >> {folder}/log || echo "JobState={state}"
"""


def commands(folder: Path, **scripts: str) -> dict[str, str]:
    """An environment where these stand in for SLURM's commands."""
    (folder / "bin").mkdir()
    for name, text in scripts.items():
        path = folder / "bin" / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}


def script_of(folder: Path, *overrides: str) -> Path:
    """The printed script, which bash can read."""
    line = [sys.executable, "-m", "cluster_bench", "launcher=slurm", f"store={folder / 'store'}", *overrides]
    script = folder / "job.sh"
    script.write_text(subprocess.run(line, check=True, capture_output=True, text=True).stdout)
    subprocess.run(["bash", "-n", script], check=True)
    return script


def test_the_printed_script_trains_on_two_nodes_and_goes_back_into_the_queue_out_of_time(tmp_path):
    script = script_of(tmp_path, "launcher.nodes=2", "method=full", *WORLD)
    text = script.read_text()
    assert "#SBATCH --requeue\n" in text
    assert "#SBATCH --signal=B:TERM@120\n" in text
    fakes = {"srun": SRUN, "scontrol": SCONTROL.format(folder=tmp_path, state="RUNNING")}
    environment = {**commands(tmp_path, **fakes), "SLURM_JOB_ID": "7", "SLURM_NNODES": "2"}
    with (tmp_path / "said").open("w") as said:
        job = subprocess.Popen(["bash", script], env=environment, stdout=said, stderr=said)
    made = is_soon(
        lambda: list(tmp_path.glob("store/training.v1/????????????????/record.json")) or job.poll(),
        within_s=240,
    )
    job.terminate()  # while it scores, as SLURM does when its time is up
    assert made, (tmp_path / "said").read_text()
    assert job.wait(70) == 143, (tmp_path / "said").read_text()
    assert (tmp_path / "log").read_text() == "requeue 7\n"
    [record] = tmp_path.glob("store/training.v1/????????????????/record.json")
    assert json.loads(record.read_text())["machine"]["nodes"] == 2
    assert {path.name for path in record.parent.glob("torchrun*.log")} == {"torchrun.log", "torchrun_1.log"}
    assert is_soon(lambda: not processes_of(tmp_path), within_s=10), processes_of(tmp_path)


def test_a_cancelled_job_stays_cancelled(tmp_path):
    waiting = f"""#!/bin/bash
trap 'echo ended >> {tmp_path}/log; exit 143' TERM
echo started >> {tmp_path}/log
while true; do sleep 0.1; done
"""
    fakes = {"srun": waiting, "scontrol": SCONTROL.format(folder=tmp_path, state="CANCELLED")}
    environment = {**commands(tmp_path, **fakes), "SLURM_JOB_ID": "7"}
    job = subprocess.Popen(["bash", script_of(tmp_path)], env=environment)
    assert is_soon((tmp_path / "log").exists, 10)
    job.terminate()
    assert job.wait(10) == 143
    assert (tmp_path / "log").read_text().splitlines() == ["started", "ended"]


SBATCH = """#!/bin/bash
script="${@: -1}"
last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' "$script")
for task in $(seq 0 "$last"); do
    SLURM_JOB_ID=7 SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=$task bash "$script" < /dev/null &> /dev/null &
done
echo "Submitted batch job 7"
"""
SRUN_OF_SUBMITIT = """#!/bin/bash
while [[ "$1" == -* ]]; do [[ "$1" == --unbuffered ]] && shift || shift 2; done
SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=1 exec "$@" > {folder}/said_$SLURM_ARRAY_TASK_ID
"""
SACCT = """#!/bin/bash
printf 'JobID|State|NodeList\\n7_0|RUNNING|here\\n7_1|RUNNING|here\\n'
"""


def test_a_sweep_is_submitted_as_one_array_of_jobs(tmp_path):
    pytest.importorskip("submitit", reason="needs the extra `slurm`")
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="needs the extra `slurm`")
    fakes = {"sbatch": SBATCH, "srun": SRUN_OF_SUBMITIT.format(folder=tmp_path), "sacct": SACCT}
    environment = commands(tmp_path, **fakes)
    line = [sys.executable, "-m", "cluster_bench", "-m", "launcher=slurm", "method=full,random", "plan=true"]
    line += [f"store={tmp_path / 'store'}", "hardware=gpu4", "launcher.partition=gpu"]
    subprocess.run(line, check=True, env=environment, capture_output=True, timeout=200)
    [script] = tmp_path.glob("store/slurm/*/*submission.sh")
    asked = ["--array=0-1%2", "--gpus-per-node=4", "--cpus-per-task=32", "--partition=gpu", "--time=240"]
    assert {f"#SBATCH {option}" for option in asked} <= set(script.read_text().splitlines())
    plans = [(tmp_path / f"said_{task}").read_text() for task in (0, 1)]
    assert "Everything" in plans[0]
    assert "Random" in plans[1]


def test_without_the_extra_a_sweep_is_refused_in_one_line(monkeypatch, capsys):
    from cluster_bench.__main__ import command

    monkeypatch.setitem(sys.modules, "hydra_plugins.hydra_submitit_launcher", None)  # as if not installed
    monkeypatch.setattr(sys, "argv", ["cluster_bench", "-m", "launcher=slurm", "seed=0,1"])
    with pytest.raises(SystemExit, match="2"):
        command()
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith(
        "error: launcher: sweeps on SLURM need the extra: pip install 'cluster-bench[slurm]'"
    )
