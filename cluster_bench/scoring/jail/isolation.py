"""What the kernel can keep from a program: namespaces, files, users, limits, system calls (calls.py)."""

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import calls

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 1 << 17, 1 << 26, 1 << 27, 1 << 28, 1 << 29, 1 << 30
PDEATHSIG, DUMPABLE, SUBREAPER = 1, 4, 36  # prctl
RDONLY, NOSUID, NODEV, REMOUNT, BIND, RECURSIVE, PRIVATE, DETACH = 1, 2, 4, 32, 4096, 16384, 1 << 18, 2
# what programs see of /, with Python and an empty folder
SYSTEM = {"bin", "dev", "etc", "lib", "lib32", "lib64", "nix", "proc", "sbin", "sys", "usr"}
_libc = ctypes.CDLL(None, use_errno=True)


def _permitted(call: Callable[..., int], *arguments: Any) -> bool:
    return call(*arguments) == 0


def prctl(option: int, value: int) -> bool:
    """A process setting; whether it was permitted."""
    return _permitted(_libc.prctl, option, ctypes.c_ulong(value), 0, 0, 0)


def _tmpfs(folder: str, flags: int, size_mb: int, mode: str = "755") -> bool:
    options = f"size={size_mb}m,mode={mode},nr_inodes=4k".encode()
    return _permitted(_libc.mount, b"tmpfs", folder.encode(), b"tmpfs", flags, options)


def _bind(source: str, target: str) -> bool:
    return _permitted(_libc.mount, source.encode(), target.encode(), None, BIND | RECURSIVE, None)


def _ways(path: str) -> list[str]:
    return [str(way) for way in reversed([Path(path), *Path(path).parents])]


def _covered(path: str) -> str:
    """The folder to cover on the way to `path`: the topmost one outside the system, else the first that only
    its owner may enter, else ""."""
    ways = _ways(path)
    if len(ways) > 1 and ways[1][1:] not in SYSTEM:
        return ways[1]
    return next((way for way in ways if not os.stat(way).st_mode & 1), "")  # noqa: PTH116


def _read_only_view() -> bool:
    """Every mount private and read-only, in this mount namespace (mount_setattr, Linux 5.12)."""
    attributes = (ctypes.c_uint64 * 4)(RDONLY | NOSUID, 0, PRIVATE, 0)
    return _permitted(_libc.syscall, 442, -100, b"/", 0x8000, ctypes.byref(attributes), 32)


class Isolation:
    """Moves this process into namespaces of its own, and tells which parts of that were not permitted."""

    def __init__(self, folder: str, limits: dict[str, int], hidden: list[str], packages: list[str]) -> None:
        self.folder, self.limits, self.packages = folder, limits, packages
        self.missing: list[str] = []
        self.root = os.geteuid() == 0
        self.processes_apart = self._namespaces()
        self.files_apart = self._files(hidden)
        if not calls.can_forbid():
            self.missing.append("system calls")

    def _namespaces(self) -> bool:
        """New namespaces around this server; the caller goes on as process 1 of the new ones."""
        uid, gid = os.geteuid(), os.getegid()
        user = 0 if self.root else NEWUSER
        if user and not _permitted(_libc.unshare, NEWUSER):
            self.missing += ["process ids", "network", "process limit"]
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
        self._home = os.open("/proc/self/ns/pid", os.O_RDONLY)
        return True

    def _files(self, hidden: list[str]) -> bool:
        """The system and Python, read-only; nothing where answers lie; an empty folder to write in."""
        needed = [sys.base_prefix, self.folder]
        needed += [f"{path}/{name}" for path in self.packages for name in ("numpy", "numpy.libs")]
        needed = [path for path in needed if os.path.isdir(path)]  # noqa: PTH112
        if not _permitted(_libc.unshare, NEWNS) or not _read_only_view():
            self.missing.append("read-only files")
            if self.root and any(not os.stat(way).st_mode & 1 for path in needed for way in _ways(path)):  # noqa: PTH116
                self.missing.append("own user")
            return False
        for folder in [*hidden, "/dev/shm"]:
            if os.path.isdir(folder) and not _tmpfs(folder, RDONLY | NOSUID | NODEV, 1):  # noqa: PTH112
                self.missing.append(f"hidden {folder}")
        if not self._cover_all_but(needed):
            self.missing.append("own user" if self.root else "covered files")
        if not (self.processes_apart and _tmpfs("/proc", RDONLY | NOSUID | NODEV, 1)):
            self.missing.append("hidden /proc")
        return self.empty_folder()

    def _cover_all_but(self, needed: list[str]) -> bool:
        """Empty file systems over all outside the system, and over what a user without rights may not enter;
        they hold nothing but the needed folders, at the same place."""
        behind = {path: os.open(path, os.O_PATH) for path in needed if _covered(path)}
        top = [entry.path for entry in os.scandir("/") if entry.is_dir(follow_symlinks=False)]
        covers = {path for path in top if path[1:] not in SYSTEM} | {_covered(path) for path in behind}
        done = all(_tmpfs(cover, NOSUID | NODEV, 1) for cover in covers)
        for path, descriptor in behind.items():
            os.makedirs(path, 0o755, exist_ok=True)  # noqa: PTH103
            done = done and _bind(f"/proc/self/fd/{descriptor}", path)
            os.close(descriptor)
        for cover in covers:
            flags = REMOUNT | BIND | RDONLY | NOSUID | NODEV
            done = done and _permitted(_libc.mount, None, cover.encode(), None, flags, None)
        return done

    def fork_apart(self) -> int:
        """Fork; the child is process 1 of a new process-id namespace, so that all it starts ends with it."""
        if self.processes_apart:
            _libc.unshare(NEWPID)
        child = os.fork()
        if child and self.processes_apart:
            _libc.setns(self._home, NEWPID)  # for the next children
        return child

    def empty_folder(self) -> bool:
        """A fresh file system to write in."""
        _libc.umount2(f"{self.folder}/run".encode(), DETACH)
        return _tmpfs(f"{self.folder}/run", NOSUID | NODEV, self.limits["file_mb"] * 4, "777")

    def give_up_rights(self, uid: int, limited: bool) -> None:
        """Become a user without rights, `limited` in time and processes too; ends with its parent."""
        limits, mb = self.limits, 2**20
        values = {
            resource.RLIMIT_AS: limits["memory_mb"] * mb,
            resource.RLIMIT_FSIZE: limits["file_mb"] * mb,
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_MEMLOCK: 0,
            resource.RLIMIT_NOFILE: 32,
        }
        if limited:
            values[resource.RLIMIT_CPU] = limits["cpu_s"]
        if limited and "process limit" not in self.missing:
            values[resource.RLIMIT_NPROC] = limits["processes"]
        for name, value in values.items():
            hard = resource.getrlimit(name)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(name, (value, value))
        if self.root and "own user" not in self.missing:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)  # gives up every capability with it
        else:
            header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
            _libc.capset(ctypes.byref(header), ctypes.byref(nothing))
        prctl(DUMPABLE, 0)
        prctl(PDEATHSIG, signal.SIGKILL)  # after the change of user, which forgets it
        if "system calls" not in self.missing and not calls.forbid():
            os._exit(1)


def _become_child() -> None:
    """Go on in a child, process 1 of the new namespace; the old process waits and passes its end on."""
    child = os.fork()
    if child:
        os.closerange(0, 3)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
    prctl(PDEATHSIG, signal.SIGKILL)
