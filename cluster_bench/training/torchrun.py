"""Start a module under torchrun and see it end: no rank outlives a failure, a signal or the parent's death.

The agent asks the kernel for a signal when its parent dies, and becomes torchrun; each worker asks the same
of the agent. Whatever is left at the end is found by its pid file and killed. Importing torch and
transformers takes longer than many a training here: agents are forked from a process that has imported both
(multiprocessing's fork server, one per parent), and without a GPU the workers are forked from their agent.
Over several machines each has one agent; `together.py` is where they meet, `follow.py` the other machines'
side. No port is guessed: what listens was given a free one by the system, or holds the configured one.
"""

import importlib.util
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path

from setproctitle import setproctitle

from cluster_bench.machine import die_with_parent
from cluster_bench.training.failure import what_failed
from cluster_bench.training.together import Alone, call

POLL_S = 0.05
GRACE_S = 35.0  # for torchrun to end its ranks, a snapshot included, after a first signal
PARENT = "CLUSTER_BENCH_PARENT"  # environment variable: the process that this one must not outlive
IMPORTED = [  # once, before any agent is forked
    "cluster_bench.training.worker",
    "torch.distributed.run",
    "torch.distributed.checkpoint",
    "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama",
]


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
        log = folder / "torchrun.log"
        agent = start_agent(party.arguments, module, request, threads, log, party.listener)
        try:
            while agent.exitcode is None:
                each_poll()
                party.check()
                time.sleep(POLL_S)
            each_poll()
        finally:
            end_agent(agent)
            end_leftovers(request)
        if agent.exitcode:
            raise RuntimeError(what_failed(folder, party.ends(agent.exitcode)))


def start_agent(
    arguments: Sequence[str],
    module: str,
    request: Path,
    threads: int,
    log: Path,
    listener: socket.socket | None = None,
) -> BaseProcess:
    """Start torchrun on the module, in a session of its own; it takes over the listening socket."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]),
    }
    context = get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    agent = context.Process(
        target=_become_torchrun, args=(arguments, module, request, environment, log, listener)
    )
    agent.start()
    if listener:
        listener.close()
    return agent


def end_agent(agent: BaseProcess) -> None:
    """End torchrun and its ranks, if it has not ended by itself."""
    if agent.exitcode is None:
        agent.terminate()
        agent.join(GRACE_S)
    if agent.exitcode is None and agent.pid:  # its session's number; 0 would be our own
        os.killpg(agent.pid, signal.SIGKILL)
    agent.join()


def end_leftovers(request: Path) -> None:
    """Kill every worker of this request that is still there, of this try or of one that was killed."""
    for pid_file in request.parent.glob("process_*.pid"):
        pid = int(pid_file.read_text() or 0)
        command = Path(f"/proc/{pid}/cmdline")
        if command.exists() and str(request).encode() in command.read_bytes():
            os.kill(pid, signal.SIGKILL)
        pid_file.unlink()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _become_torchrun(
    arguments: Sequence[str],
    module: str,
    request: Path,
    environment: Mapping[str, str],
    log: Path,
    listener: socket.socket | None,
) -> None:
    """The agent's side. Where the agents of several machines meet here, serve that first."""
    import torch
    from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]
    from torch.distributed import run as torch_run

    os.setsid()
    setproctitle(f"torchrun {module} {request}")
    die_with_parent(os.getppid())  # the fork server; it lives as long as the parent or any agent
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.clear()
    os.environ.update(environment, **{PARENT: str(os.getpid())})  # the workers'
    with log.open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    server: TCPStore | None = None
    if listener:
        server = TCPStore(
            "localhost",
            listener.getsockname()[1],
            is_master=True,
            wait_for_workers=False,
            multi_tenant=True,  # torchrun's own rendezvous finds it by its port and uses it
            master_listen_fd=listener.detach(),
        )
    worker = ["-m", module]
    if not torch.cuda.is_available():  # CUDA cannot be used in a process forked after it was looked at
        found = importlib.util.find_spec(module)
        worker = ["--run-path", "--start-method=fork", str(found.origin if found else module)]
    # A try that failed is never restarted in place: the new ranks would find the dead ones' addresses.
    torch_run.main(["--max-restarts=0", *arguments, *worker, str(request)])
    del server
