"""The server that runs untrusted programs, one at a time; a script of its own that never holds torch.

    python -s -S -P jail.py '{"folder": ..., "limits": {...}, "hidden": [...], "packages": ...}'

It reads one JSON request a line and answers one JSON verdict a line; the first line it writes names the parts
of the isolation that the system did not permit. Every program gets a *referee* (our code and the tests) and
a *player* (the program), see referee.py. The player lives in its own process-id namespace, without network,
on a read-only file system but for an empty folder, as a user without rights, under limits; whatever it
started dies with it. A process-id namespace around all of this dies with the server.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PRELOADED = (  # what programs often import
    *("typing", "math", "collections", "itertools", "functools", "re", "heapq", "bisect", "string", "random"),
    *("datetime", "json", "copy", "operator", "statistics", "fractions", "decimal", "dataclasses", "struct"),
)
NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = (
    0x20000,
    0x4000000,
    0x8000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
PDEATHSIG, DUMPABLE, NO_NEW_PRIVS, SUBREAPER = 1, 4, 38, 36  # prctl
RDONLY, NOSUID, NODEV, REMOUNT, BIND, RECURSIVE, PRIVATE, DETACH = 1, 2, 4, 32, 4096, 16384, 1 << 18, 2
NOBODY = 65534
OWN_USERS = range(61184, 65520)  # users without a name: one per server, so that process limits do not add up
_libc = ctypes.CDLL(None, use_errno=True)


def _permitted(call: Callable[..., int], *arguments: Any) -> bool:
    return call(*arguments) == 0


def _prctl(option: int, value: int) -> bool:
    return _permitted(_libc.prctl, option, ctypes.c_ulong(value), 0, 0, 0)


def _tmpfs(folder: str, flags: int, size_mb: int, mode: str = "755") -> bool:
    options = f"size={size_mb}m,mode={mode}".encode()
    return _permitted(_libc.mount, b"tmpfs", folder.encode(), b"tmpfs", flags, options)


def _bind(source: str, target: str) -> bool:
    return _permitted(_libc.mount, source.encode(), target.encode(), None, BIND | RECURSIVE, None)


def _closed_at(path: str) -> str:
    """The first folder on the way to `path` that only its owner may enter, or ""."""
    ways = [path, *map(str, Path(path).parents)]
    return next((way for way in reversed(ways) if not os.stat(way).st_mode & 1), "")  # noqa: PTH116


def _read_only_view() -> bool:
    """Every mount private and read-only, in this mount namespace (mount_setattr, Linux 5.12)."""
    attributes = (ctypes.c_uint64 * 4)(RDONLY | NOSUID, 0, PRIVATE, 0)
    return _permitted(_libc.syscall, 442, -100, b"/", 0x8000, ctypes.byref(attributes), 32)


class Jail:
    """What this process could get of the isolation, and how a program is run in it."""

    def __init__(self, folder: str, limits: dict[str, int], hidden: list[str], packages: list[str]) -> None:
        self.folder, self.limits, self.packages = folder, limits, packages
        self.missing: list[str] = []
        self.root = os.geteuid() == 0
        self.processes_apart = self._namespaces()
        self.files_apart = self._files(hidden)

    def _namespaces(self) -> bool:
        """New namespaces around this server; the caller goes on as process 1 of the new ones."""
        uid, gid = os.geteuid(), os.getegid()
        user = 0 if self.root else NEWUSER
        if user and not _permitted(_libc.unshare, NEWUSER):
            self.missing += ["process ids", "network", "read-only files", "process limit"]
            return False
        if user:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
        for flag, name in ((NEWNET, "network"), (NEWIPC, "shared memory"), (NEWUTS, "host name")):
            if not _permitted(_libc.unshare, flag):
                self.missing.append(name)
        if not _permitted(_libc.unshare, NEWPID):
            self.missing.append("process ids")
            return False
        _become_child()
        return True

    def _files(self, hidden: list[str]) -> bool:
        """Read-only files, no /proc, nothing where the answers lie, and a small file system to write in."""
        if not _permitted(_libc.unshare, NEWNS) or not _read_only_view():
            self.missing.append("read-only files")
            if self.root and any(map(_closed_at, (sys.base_prefix, *self.packages, self.folder))):
                self.missing.append("own user")
            return False
        if not (self.processes_apart and _tmpfs("/proc", RDONLY | NOSUID | NODEV, 1)):
            self.missing.append("hidden /proc")
        for folder in hidden:
            if not _tmpfs(folder, RDONLY | NOSUID | NODEV, 1):
                self.missing.append(f"hidden {folder}")
        if self.root and not self._open_up([sys.base_prefix, *self.packages, self.folder]):
            self.missing.append("own user")
        return self._empty_folder()

    def _empty_folder(self) -> bool:
        return _tmpfs(f"{self.folder}/run", NOSUID | NODEV, self.limits["file_mb"] * 4, "777")

    def _open_up(self, needed: list[str]) -> bool:
        """Let a user without rights reach what Python needs, below folders that are closed to it: those are
        covered by an empty one that holds nothing but the needed paths, at the same place."""
        closed = {path: _closed_at(path) for path in needed}
        staged = {path: f"{self.folder}/stage{n}" for n, path in enumerate(needed) if closed[path]}
        done = all(_bind(path, stage) for path, stage in staged.items())
        for cover in {closed[path] for path in staged}:
            done = done and _tmpfs(cover, NOSUID | NODEV, 1)
        for path, stage in staged.items():
            os.makedirs(path, 0o755, exist_ok=True)  # noqa: PTH103
            done = done and _bind(stage, path)
        for cover in {closed[path] for path in staged}:
            flags = REMOUNT | BIND | RDONLY | NOSUID | NODEV
            done = done and _permitted(_libc.mount, None, cover.encode(), None, flags, None)
        return done

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """One program, start to end; nothing of it is left when this returns."""
        if "numpy" in request["program"] or "numpy" in request["tests"]:
            self._use_packages()
        reader, writer = os.pipe()
        referee = os.fork()
        if referee == 0:
            self._referee(writer, request)
        os.close(writer)
        answer, player = _listen(reader, time.monotonic() + request["timeout_s"])
        os.close(reader)
        self._end(referee, player)
        self._clean()
        return answer

    def _use_packages(self) -> None:
        if self.packages[0] not in sys.path:
            sys.path += self.packages
            with contextlib.suppress(ImportError):
                importlib.import_module("numpy")

    def _referee(self, writer: int, request: dict[str, Any]) -> None:
        """In a child: start the player, give up all rights, run the tests, write the verdict, end."""
        import referee

        ours, theirs = socket.socketpair()
        _prctl(DUMPABLE, 0)
        apart = self.processes_apart and _permitted(_libc.unshare, NEWPID)
        player = os.fork()
        if player == 0:
            self._become_player(theirs.fileno())
            referee.play(3)
            os._exit(0)
        os.write(writer, f"{player} {apart:d}\n".encode())
        theirs.close()
        self._limit(uid=NOBODY, processes=False)
        _prctl(PDEATHSIG, signal.SIGKILL)  # after the change of user, which forgets it
        answer = referee.judge(ours, request)
        os.write(writer, json.dumps(answer).encode() + b"\n")
        os._exit(0)

    def _become_player(self, channel: int) -> None:
        """No rights, no descriptors but the channel (as 3), an empty folder, an empty environment."""
        os.setsid()
        null = os.open("/dev/null", os.O_RDWR)
        for number, target in ((channel, 3), (null, 0), (null, 1), (null, 2)):
            os.dup2(number, target)
        os.closerange(4, 256)
        os.chdir(f"{self.folder}/run")
        self._limit(uid=OWN_USERS[self.limits["slot"] % len(OWN_USERS)], processes=True)
        _prctl(PDEATHSIG, signal.SIGKILL)
        os.environ.clear()

    def _limit(self, uid: int, processes: bool) -> None:
        limits, mb = self.limits, 2**20
        values = {
            resource.RLIMIT_AS: limits["memory_mb"] * mb,
            resource.RLIMIT_CPU: limits["cpu_s"],
            resource.RLIMIT_FSIZE: limits["file_mb"] * mb,
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_MEMLOCK: 0,
            resource.RLIMIT_NOFILE: 32,
        }
        if processes and "process limit" not in self.missing:
            values[resource.RLIMIT_NPROC] = limits["processes"]
        for name, value in values.items():
            hard = resource.getrlimit(name)[1]
            value = int(value) if hard == resource.RLIM_INFINITY else min(int(value), hard)
            resource.setrlimit(name, (value, value))
        if self.root and "own user" not in self.missing:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)  # gives up every capability with it
        else:
            header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
            _libc.capset(ctypes.byref(header), ctypes.byref(nothing))
        _prctl(NO_NEW_PRIVS, 1)
        _prctl(DUMPABLE, 0)

    def _end(self, referee: int, player: int) -> None:
        """Kill both and all that the player started, until this process has no child left."""
        for victim in (referee, player):
            if victim:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(victim, signal.SIGKILL)
        if player:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(player, signal.SIGKILL)
        while True:
            if not self.processes_apart:
                _kill_children()
            try:
                if os.waitpid(-1, 0 if self.processes_apart else os.WNOHANG) == (0, 0):
                    time.sleep(0.002)
            except ChildProcessError:
                return

    def _clean(self) -> None:
        """An empty folder for the next program."""
        run = f"{self.folder}/run"
        if not os.listdir(run):  # noqa: PTH208
            return
        if self.files_apart:
            _libc.umount2(run.encode(), DETACH)
            self._empty_folder()
            return
        for parent, folders, _ in os.walk(run):
            for name in folders:
                os.chmod(f"{parent}/{name}", 0o700)  # noqa: PTH101
        for entry in os.scandir(run):
            (shutil.rmtree if entry.is_dir(follow_symlinks=False) else os.unlink)(entry.path)


def _become_child() -> None:
    """Go on in a child, process 1 of the new namespace; the old process waits and passes its end on."""
    child = os.fork()
    if child:
        os.closerange(0, 3)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
    _prctl(PDEATHSIG, signal.SIGKILL)


def _kill_children() -> None:
    """Where process ids are shared: orphans come to us, their nearest reaper, and are killed one by one."""
    us = os.getpid()
    for entry in os.listdir("/proc"):  # noqa: PTH208
        with contextlib.suppress(OSError, ValueError):
            fields = Path(f"/proc/{int(entry)}/stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == us:
                os.kill(int(entry), signal.SIGKILL)


def _listen(reader: int, deadline: float) -> tuple[dict[str, Any], int]:
    """The referee's answer, and the player's process id as this process sees it."""
    text = b""
    while text.count(b"\n") < 2:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            answer = {"verdict": "timeout", "detail": "", "together": False}
            break
        piece = os.read(reader, 65536)
        if not piece:
            answer = {"verdict": "crashed", "detail": "the referee ended", "together": False}
            break
        text += piece
    else:
        answer = json.loads(text.split(b"\n")[1])
    head = text.split(b"\n")[0].split() if b"\n" in text else []
    return answer, int(head[0]) if head else 0


def main() -> None:
    """Serve until standard input ends."""
    os.umask(0o022)
    _prctl(PDEATHSIG, signal.SIGKILL)
    sys.path.append(str(Path(__file__).parent))
    importlib.import_module("referee")
    sys.path.pop()
    for name in PRELOADED:
        importlib.import_module(name)
    jail = Jail(**json.loads(sys.argv[1]))
    _prctl(SUBREAPER, 1)
    gc.freeze()
    print(json.dumps(jail.missing), flush=True)
    for line in sys.stdin:
        print(json.dumps(jail.run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
