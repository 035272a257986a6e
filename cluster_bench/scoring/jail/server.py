"""The server that runs untrusted programs, one at a time.

Over the socket that is its standard input it first tells which parts of the isolation the system does not
permit; then it gets an order per program, with a *paper*: a socket on which the caller and the *referee*, who
serves many programs, exchange request and verdict. The server reads no paper, so that a *player*, which is
forked from it for each program, has no test in its memory (see referee.py). A player has a process-id
namespace, no network, read-only files but for an empty folder, a user without rights, limits (isolation.py).
Whatever it started dies with it.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import struct
import sys
from pathlib import Path

from . import isolation, referee
from .carrying import send

PRELOADED = (  # what programs often import
    *("typing", "math", "collections", "itertools", "functools", "re", "heapq", "bisect", "string", "random"),
    *("datetime", "json", "copy", "operator", "statistics", "fractions", "decimal", "dataclasses", "struct"),
)
NOBODY = 65534
OWN_USERS = range(61184, 65520)  # users without a name: one per server, so that process limits do not add up
ORDER = struct.Struct("<d?")  # seconds, and whether packages are needed
JUDGED, TIMEOUT, CRASHED = b"j", b"t", b"c"


class Jail:
    """One referee, and a new player for each program."""

    def __init__(self, walls: isolation.Isolation) -> None:
        self.walls = walls
        self._referee, self._line = 0, socket.socket()
        self.new_referee()

    def run(self, timeout_s: float, paper: int) -> bytes:
        """One program, start to end; nothing of it is left when this returns how it ended."""
        ours, theirs = socket.socketpair()
        player = self.walls.fork_apart()
        if player == 0:
            self._play(theirs.fileno())
        theirs.close()
        try:
            with ours, socket.socket(fileno=paper):
                socket.send_fds(self._line, [b"!"], [ours.fileno(), paper])
            end = TIMEOUT
            if select.select([self._line], [], [], timeout_s)[0]:
                end = JUDGED if self._line.recv(1) else CRASHED
        except OSError:
            end = CRASHED
        self._end(player)
        if end != JUDGED:
            self.new_referee()  # this one may be busy with what it got from the program
        self._clean()
        return end

    def use_packages(self) -> None:
        """For all programs to come; the referee as well, which is therefore a new one."""
        if self.walls.packages and self.walls.packages[0] not in sys.path:
            sys.path += self.walls.packages
            with contextlib.suppress(ImportError):
                importlib.import_module("numpy")
            self.new_referee()

    def new_referee(self) -> None:
        """The next one, after the end of the one before."""
        if self._referee:
            os.kill(self._referee, signal.SIGKILL)
            os.waitpid(self._referee, 0)
            self._line.close()
        self._line, theirs = socket.socketpair()
        self._referee = os.fork()
        if self._referee == 0:
            self._line.close()
            os.dup2(1, 0)  # tests that print or read do so nowhere
            os.dup2(1, 2)
            gc.disable()
            self.walls.give_up_rights(NOBODY, limited=False)
            referee.serve(theirs)
            os._exit(0)
        theirs.close()

    def _play(self, channel: int) -> None:
        """In the player: no rights, no descriptors but the channel (3), an empty folder and environment."""
        os.setsid()
        null = os.open("/dev/null", os.O_RDWR)
        for number, target in ((channel, 63), (63, 3), (null, 0), (null, 1), (null, 2)):
            os.dup2(number, target)
        os.closerange(4, 256)
        os.chdir(f"{self.walls.folder}/run")
        self.walls.give_up_rights(OWN_USERS[self.walls.limits["slot"] % len(OWN_USERS)], limited=True)
        os.environ.clear()
        referee.play(3)
        os._exit(0)

    def _end(self, player: int) -> None:
        """Kill the player and all that it started, until none is left."""
        for kill in (os.kill, os.killpg):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(player, signal.SIGKILL)
        os.waitpid(player, 0)  # process 1 of its namespace: this returns when the others are gone
        while not self.walls.processes_apart and (orphans := _children() - {self._referee}):
            for orphan in orphans:
                os.kill(orphan, signal.SIGKILL)
                os.waitpid(orphan, 0)

    def _clean(self) -> None:
        """An empty folder for the next program."""
        run = f"{self.walls.folder}/run"
        if not os.listdir(run):  # noqa: PTH208
            return
        if self.walls.files_apart:
            self.walls.empty_folder()
            return
        for parent, folders, _ in os.walk(run):
            for name in folders:
                os.chmod(f"{parent}/{name}", 0o700)  # noqa: PTH101
        for entry in os.scandir(run):
            (shutil.rmtree if entry.is_dir(follow_symlinks=False) else os.unlink)(entry.path)


def _children() -> set[int]:
    """Where process ids are shared: orphans come to us, their nearest reaper."""
    found: set[int] = set()
    for entry in os.listdir("/proc"):  # noqa: PTH208
        with contextlib.suppress(OSError, ValueError):
            fields = Path(f"/proc/{int(entry)}/stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                found.add(int(entry))
    return found


def main() -> None:
    """Serve until the socket ends; the argument is a JSON object of `Isolation`'s."""
    os.umask(0o022)
    isolation.prctl(isolation.PDEATHSIG, signal.SIGKILL)
    for name in PRELOADED:
        importlib.import_module(name)
    walls = isolation.Isolation(**json.loads(sys.argv[1]))
    isolation.prctl(isolation.SUBREAPER, 1)
    control = socket.socket(fileno=0)
    gc.freeze()
    jail = Jail(walls)
    send(control, {"missing": walls.missing})
    while True:
        order, papers, _, _ = socket.recv_fds(control, ORDER.size, 1)
        if not papers:
            return
        timeout_s, packages = ORDER.unpack(order)
        if packages:
            jail.use_packages()
        control.sendall(jail.run(timeout_s, papers[0]))
