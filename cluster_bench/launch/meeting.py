"""How the machines of one run meet: small files in a folder of the shared file system.

    run.json        what node 0 was told
    node_<k>.json   node k's sign of life, written anew every second, with what it has to say
    job.json        the torchrun job that all are to join, as long as it runs

Clocks of two machines do not agree, so no time is ever read from a file: a machine is there while its file
changes, and what lay in the folder before it changed was left by an earlier run.
"""

import dataclasses
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from cluster_bench.launch.nodes import Nodes

BEAT_S = 1.0  # between two signs of life
SILENT_S = 60.0  # without one, a machine is gone

Say = Callable[..., None]
"""Say something more beside the signs of life: `say(job="...", code=0)`."""


@dataclass(frozen=True)
class Job:
    """One torchrun job over all machines."""

    id: str
    module: str
    request: str
    processes: int  # on each machine
    threads: int  # of each process
    nodes: int
    endpoint: str  # host:port of the c10d rendezvous
    wait_s: float


@contextmanager
def lead(nodes: Nodes) -> Generator[None]:
    """Be node 0 inside the block, and tell the others how it ends.

    Raises ValueError if another process leads a run of this name, or if the configured port is in use.
    """
    nodes.meeting.mkdir(parents=True, exist_ok=True)
    lock = FileLock(nodes.meeting / "lead.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(
            f"launcher.run: {nodes.run!r} is led by another process; choose another name"
        ) from None
    with lock:
        listening(nodes.port).close()
        for left in nodes.meeting.glob("*.json"):
            left.unlink(missing_ok=True)
        write(nodes.meeting / "run.json", {**dataclasses.asdict(nodes), "address": nodes.host})
        with beating(nodes) as say:
            try:
                yield
            except BaseException as error:
                say(ended=f"{type(error).__name__}: {error}")
                raise
            say(ended="")


@contextmanager
def beating(nodes: Nodes) -> Generator[Say]:
    """Give signs of life inside the block."""
    nodes.meeting.mkdir(parents=True, exist_ok=True)
    path = nodes.meeting / f"node_{nodes.node}.json"
    said: dict[str, Any] = {"host": nodes.host, "beat": 0}
    lock, done = threading.Lock(), threading.Event()

    def say(**words: Any) -> None:
        with lock:
            said.update(words, beat=said["beat"] + 1)
            path.write_text(
                json.dumps(said)
            )  # in place: NFS shows a file's new content sooner than a new file

    def beat() -> None:
        while not done.wait(BEAT_S):
            with suppress(OSError):  # a shared file system that is away for a moment; the next beat says it
                say()

    thread = threading.Thread(target=beat, daemon=True)
    say()
    thread.start()
    try:
        yield say
    finally:
        done.set()
        thread.join()


class Watched:
    """Another machine of the run, as its file shows it."""

    def __init__(self, meeting: Path, node: int) -> None:
        self.node = node
        self._path = meeting / f"node_{node}.json"
        self._text = self._read()
        self._changed = time.monotonic()
        self._said: dict[str, Any] = {}

    def look(self) -> dict[str, Any]:
        """What it said last; empty before its first sign of life."""
        text = self._read()
        if text != self._text:
            with suppress(ValueError):  # half written; the whole follows
                self._said = json.loads(text)
                self._text, self._changed = text, time.monotonic()
        return self._said

    @property
    def silent_s(self) -> float:
        """Seconds since its last sign of life, or since it is watched."""
        return time.monotonic() - self._changed

    @property
    def name(self) -> str:
        """Its number and host."""
        return f"node {self.node} ({self._said['host']})" if self._said else f"node {self.node}"

    def _read(self) -> str:
        with suppress(OSError):
            return self._path.read_text()
        return ""


@contextmanager
def called(meeting: Path, job: Job) -> Generator[None]:
    """Call the other machines to a job for as long as the block lasts."""
    write(meeting / "job.json", dataclasses.asdict(job))
    try:
        yield
    finally:
        (meeting / "job.json").unlink(missing_ok=True)


def calls(meeting: Path) -> Job | None:
    """The job that runs now."""
    with suppress(OSError):
        return Job(**json.loads((meeting / "job.json").read_text()))
    return None


def leader(meeting: Path) -> Nodes:
    """What node 0 was told."""
    return Nodes(**json.loads((meeting / "run.json").read_text()))


def listening(port: int) -> socket.socket:
    """A socket that listens on every interface; port 0 is one that the system chooses.

    Raises ValueError if the port is in use.
    """
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        return socket.create_server(("", port), family=family, dualstack_ipv6=both)
    except OSError as error:
        why = os.strerror(error.errno or 0).lower()
        raise ValueError(
            f"launcher.port: {port} on {socket.gethostname()}: {why}; launcher.port=0 takes a free one"
        ) from None


def write(path: Path, told: dict[str, Any]) -> None:
    """Put a whole file in place, or none."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(told))
    draft.replace(path)
