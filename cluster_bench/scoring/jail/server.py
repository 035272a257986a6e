"""The server that runs untrusted programs, one at a time.

It reads one JSON request a line and answers one JSON verdict a line; the first line it writes names the parts
of the isolation that the system did not permit. A *referee* with our code and the tests serves many programs;
each program gets a *player* of its own (see referee.py): a process-id namespace, no network, read-only files
but for an empty folder, a user without rights, limits (see isolation.py). Whatever it started dies with it.
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
import sys
from pathlib import Path
from typing import Any

from . import isolation, referee
from .carrying import receive, send

PRELOADED = (  # what programs often import
    *("typing", "math", "collections", "itertools", "functools", "re", "heapq", "bisect", "string", "random"),
    *("datetime", "json", "copy", "operator", "statistics", "fractions", "decimal", "dataclasses", "struct"),
)
NOBODY = 65534
OWN_USERS = range(61184, 65520)  # users without a name: one per server, so that process limits do not add up
GRACE_S = 5.0  # for the referee to notice that the player is gone


class Jail:
    """One referee, and a new player for each program."""

    def __init__(self, walls: isolation.Isolation) -> None:
        self.walls = walls
        self._referee, self._line = 0, socket.socket()
        self._new_referee()

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """One program, start to end; nothing of it is left when this returns."""
        if "numpy" in request["program"] or "numpy" in request["tests"]:
            self._use_packages()
        ours, theirs = socket.socketpair()
        player = self.walls.fork_apart()
        if player == 0:
            self._play(theirs.fileno())
        theirs.close()
        answer: dict[str, Any] = {"verdict": "timeout", "detail": "", "together": request["together"]}
        try:
            with ours:
                socket.send_fds(self._line, [b"!"], [ours.fileno()])
            send(self._line, request)
            ready = select.select([self._line], [], [], request["timeout_s"])[0]
            if ready:
                answer = receive(self._line)
            self._end(player)
            if not ready and select.select([self._line], [], [], GRACE_S)[0]:
                receive(self._line)  # what it says of a player that was killed
            elif not ready:
                self._new_referee()  # the tests themselves do not end
        except (EOFError, OSError) as error:
            answer |= {"verdict": "crashed", "detail": f"the referee ended: {error}"}
            self._end(player)
            self._new_referee()
        self._clean()
        return answer

    def _use_packages(self) -> None:
        """For all programs to come; the referee as well, which is therefore a new one."""
        if self.walls.packages and self.walls.packages[0] not in sys.path:
            sys.path += self.walls.packages
            with contextlib.suppress(ImportError):
                importlib.import_module("numpy")
            self._new_referee()

    def _new_referee(self) -> None:
        if self._referee:
            os.kill(self._referee, signal.SIGKILL)
            os.waitpid(self._referee, 0)
            self._line.close()
        self._line, theirs = socket.socketpair()
        self._referee = os.fork()
        if self._referee == 0:
            self._line.close()
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
    """Serve until standard input ends; the argument is a JSON object of `Isolation`'s."""
    os.umask(0o022)
    isolation.prctl(isolation.PDEATHSIG, signal.SIGKILL)
    for name in PRELOADED:
        importlib.import_module(name)
    walls = isolation.Isolation(**json.loads(sys.argv[1]))
    isolation.prctl(isolation.SUBREAPER, 1)
    gc.freeze()
    jail = Jail(walls)
    print(json.dumps(walls.missing), flush=True)
    for line in sys.stdin:
        print(json.dumps(jail.run(json.loads(line))), flush=True)
