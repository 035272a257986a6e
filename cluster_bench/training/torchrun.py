"""Start a module under torchrun and see it end: no rank outlives a failure, a signal or the parent's death.

The agent (this file run as a module) asks the kernel for a signal when its parent dies, and becomes torchrun;
each worker asks the same of the agent. Whatever is left at the end is found by its pid file and killed.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from cluster_bench.machine import die_with_parent

POLL_S = 0.05
GRACE_S = 5.0  # for torchrun to end its ranks after a first signal
PARENT = "CLUSTER_BENCH_PARENT"  # environment variable: the process that this one must not outlive


def torchrun(module: str, request: Path, processes: int, threads: int, each_poll: Callable[[], None]) -> None:
    """Run `python -m module request` in as many processes; their output goes to `torchrun.log` beside it.

    `each_poll` is called a few times a second meanwhile. Raises RuntimeError that names the first rank that
    failed, with its traceback or exit code.
    """
    folder = request.parent
    end_leftovers(request)
    command = [sys.executable, "-m", "cluster_bench.training.torchrun", "--standalone", "--max-restarts=0"]
    command += [f"--nproc-per-node={processes}", "-m", module, str(request)]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        PARENT: str(os.getpid()),
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]),
    }
    with (folder / "torchrun.log").open("w") as log:
        agent = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, env=environment
        )
    try:
        while agent.poll() is None:
            each_poll()
            time.sleep(POLL_S)
        each_poll()
    finally:
        _end(agent)
        end_leftovers(request)
    if agent.returncode:
        raise RuntimeError(_what_failed(folder, agent.returncode))


def end_leftovers(request: Path) -> None:
    """Kill every worker of this request that is still there, of this try or of one that was killed."""
    for pid_file in request.parent.glob("process_*.pid"):
        pid = int(pid_file.read_text() or 0)
        command = Path(f"/proc/{pid}/cmdline")
        if command.exists() and str(request).encode() in command.read_bytes():
            os.kill(pid, signal.SIGKILL)
        pid_file.unlink()


def _end(agent: "subprocess.Popen[bytes]") -> None:
    if agent.poll() is None:
        agent.terminate()
        try:
            agent.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(agent.pid, signal.SIGKILL)
            agent.wait()


def _what_failed(folder: Path, code: int) -> str:
    """The first rank's own traceback, else torchrun's word on how it ended, else the end of the log."""
    log = (folder / "torchrun.log").read_text()
    ended = re.search(r"Root Cause.*?rank\s+: (\d+).*?exitcode\s+: -(\d+)", log, re.DOTALL)
    if ended and int(ended[2]) != signal.SIGTERM:  # torchrun's own way to end the others
        name = signal.Signals(int(ended[2])).name
        return f"training: process {ended[1]} was ended by {name}; the log is {folder / 'torchrun.log'}"
    errors = sorted(folder.glob("process_*.error"), key=lambda path: path.stat().st_mtime_ns)
    if errors:
        process = errors[0].stem.removeprefix("process_")
        return f"training: process {process} failed:\n{errors[0].read_text()}"
    return f"training: torchrun ended with code {code}:\n{log[-2000:]}"


if __name__ == "__main__":
    die_with_parent(int(os.environ[PARENT]))
    os.environ[PARENT] = str(os.getpid())  # for the workers
    from torch.distributed.run import main

    main(sys.argv[1:])
