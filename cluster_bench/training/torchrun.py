"""Start a module under torchrun and see it end: no rank outlives a failure, a signal or the parent's death.

The agent (this file run as a module) asks the kernel for a signal when its parent dies, and becomes torchrun;
each worker asks the same of the agent. Whatever is left at the end is found by its pid file and killed.
Over several machines each has one agent; `together.py` is where they meet, `follow.py` the other machines'
side. No port is guessed: what listens was given a free one by the system, or holds the configured one.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

from cluster_bench.machine import die_with_parent
from cluster_bench.training.failure import what_failed
from cluster_bench.training.together import Alone, call

POLL_S = 0.05
GRACE_S = 35.0  # for torchrun to end its ranks, a snapshot included, after a first signal
PARENT = "CLUSTER_BENCH_PARENT"  # environment variable: the process that this one must not outlive
LISTEN = "CLUSTER_BENCH_LISTEN"  # environment variable: the open socket where the agents meet


def torchrun(
    module: str,
    request: Path,
    processes: int,
    threads: int,
    each_poll: Callable[[], None],
    meeting: str = "",
) -> None:
    """Run `python -m module request` in as many processes; their output goes to `torchrun.log` beside it.

    `meeting` is the folder where the machines meet that share the processes; empty, this one is alone.
    `each_poll` is called a few times a second meanwhile. Raises RuntimeError that names the first rank, or
    the machine, that failed, with its traceback or exit code.
    """
    folder = request.parent
    end_leftovers(request)
    alone = nullcontext(Alone(processes))
    with call(meeting, module, request, processes, threads) if meeting else alone as party:
        arguments = [*party.arguments, "-m", module, str(request)]
        agent = start_agent(arguments, threads, folder / "torchrun.log", party.listener)
        try:
            while agent.poll() is None:
                each_poll()
                party.check()
                time.sleep(POLL_S)
            each_poll()
        finally:
            end_agent(agent)
            end_leftovers(request)
        if agent.returncode:
            raise RuntimeError(what_failed(folder, party.ends(agent.returncode)))


def start_agent(
    arguments: Sequence[str], threads: int, log: Path, listener: socket.socket | None = None
) -> "subprocess.Popen[bytes]":
    """Start torchrun with these arguments, in a session of its own; it takes over the listening socket."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        PARENT: str(os.getpid()),
        LISTEN: str(listener.fileno()) if listener else "",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]),
    }
    # A try that failed is never restarted in place: the new ranks would find the dead ones' addresses.
    command = [sys.executable, "-m", "cluster_bench.training.torchrun", "--max-restarts=0", *arguments]
    with log.open("w") as output:
        agent = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=environment,
            pass_fds=[listener.fileno()] if listener else [],
        )
    if listener:
        listener.close()
    return agent


def end_agent(agent: "subprocess.Popen[bytes]") -> None:
    """End torchrun and its ranks, if it has not ended by itself."""
    if agent.poll() is None:
        agent.terminate()
        try:
            agent.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(agent.pid, signal.SIGKILL)
            agent.wait()


def end_leftovers(request: Path) -> None:
    """Kill every worker of this request that is still there, of this try or of one that was killed."""
    for pid_file in request.parent.glob("process_*.pid"):
        pid = int(pid_file.read_text() or 0)
        command = Path(f"/proc/{pid}/cmdline")
        if command.exists() and str(request).encode() in command.read_bytes():
            os.kill(pid, signal.SIGKILL)
        pid_file.unlink()


def main() -> None:
    """Become torchrun. Where the agents of several machines meet here, serve that first."""
    from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]
    from torch.distributed import run as torch_run

    listener = os.environ.pop(LISTEN)
    server: TCPStore | None = None
    if listener:
        port = socket.socket(fileno=os.dup(int(listener))).getsockname()[1]
        server = TCPStore(
            "localhost",
            port,
            is_master=True,
            wait_for_workers=False,
            multi_tenant=True,  # torchrun's own rendezvous finds it by its port and uses it
            master_listen_fd=int(listener),
        )
    torch_run.main(sys.argv[1:])
    del server


if __name__ == "__main__":
    die_with_parent(int(os.environ[PARENT]))
    os.environ[PARENT] = str(os.getpid())  # for the workers
    main()
