"""What ran a job: the facts that every record carries, and the ways to let no process outlive its parent."""

import ctypes
import dataclasses
import os
import platform
import signal
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cluster_bench.artifacts import Machine

PR_SET_PDEATHSIG = 1


def facts(machine: Machine) -> dict[str, Any]:
    """The machine and the versions that decide how fast a job is: figures never mix two of these."""
    told = {**_host(), **dataclasses.asdict(machine)}
    del told["meeting"]  # a place, which makes nothing faster
    if machine.nodes == 1:
        del told["nodes"]  # one machine is the rule, and what earlier records mean by saying nothing
    return told


@cache
def _host() -> dict[str, Any]:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(pages / 2**30),
        "python": platform.python_version(),
        "torch": version("torch"),
        "transformers": version("transformers"),
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.machine()


@contextmanager
def torch_threads(count: int) -> Generator[None]:
    """Let torch use so many threads inside the block."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def die_with_parent(parent: int, signal_number: int = signal.SIGTERM) -> None:
    """Ask the kernel to signal this process when its parent ends, however it ends (Linux).

    `parent` is the parent's process id as the parent itself told it: one that ended before the kernel was
    asked has been replaced by then, and this process ends at once.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal_number)
