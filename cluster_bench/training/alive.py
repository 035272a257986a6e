"""Signs of life: each process says what it does; the parent names one that has been silent for too long.

process_<process>.alive    what it does now, rewritten at every micro-batch
process_<process>.stack    where it stands, written when SIGUSR1 asks (before the parent ends a silent one)

A process that is told to end (SIGTERM, from a scheduler or torchrun) finishes its step and takes a snapshot;
one that waits in vain for the others meanwhile ends by itself.
"""

import faulthandler
import os
import signal
import threading
import time
from pathlib import Path
from typing import IO, Any

PATIENCE_S = 5.0  # after it was told to end: without a sign of life for so long, a process is stuck
WAITS = "waits for the others"
WRITES = "writes a snapshot"


class Alive:
    """The process's side. Made before any thread is, in the main thread."""

    def __init__(self, folder: Path, process: int) -> None:
        self.told_to_end = False
        self._file: IO[str] = (folder / f"process_{process}.alive").open("w")
        self._stack: IO[str] = (folder / f"process_{process}.stack").open("w")
        self._doing, self._since = "", time.monotonic()
        faulthandler.register(signal.SIGUSR1, file=self._stack)
        self.does("starts")
        read, write = os.pipe()
        os.set_blocking(write, False)
        # The main thread may be inside a sum of gradients for ever: a byte in the pipe reaches the watcher.
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, _noted)
        threading.Thread(target=self._watch, args=(read,), daemon=True).start()

    def does(self, what: str) -> None:
        """Say what this process does from now on."""
        self._doing, self._since = what, time.monotonic()
        self._file.seek(0)
        self._file.write(f"{what}\n")
        self._file.truncate()
        self._file.flush()

    def _watch(self, pipe: int) -> None:
        while signal.SIGTERM not in os.read(pipe, 64):
            pass
        self.told_to_end = True
        while self._doing == WRITES or time.monotonic() < self._since + PATIENCE_S:
            time.sleep(0.1)
        os._exit(128 + signal.SIGTERM)


def _noted(*_: Any) -> None:
    """SIGTERM ends nothing here: the watcher sees to it."""


def end_silent(folder: Path, processes: int, limit_s: float) -> None:
    """Where a process has been silent for too long, end it and raise RuntimeError that says where it stood.

    A process that waits for the others is silent because of them; if all wait, the first is named.
    """
    signs = [folder / f"process_{process}.alive" for process in range(processes)]
    if not all(sign.exists() for sign in signs):
        return
    ages = [time.time() - sign.stat().st_mtime for sign in signs]
    if max(ages) < limit_s:
        return
    doing = [sign.read_text().strip() for sign in signs]
    at_work = [p for p in range(processes) if not doing[p].startswith(WAITS)] or list(range(processes))
    silent = max(at_work, key=ages.__getitem__)
    if ages[silent] < limit_s:
        return
    stack = _stack(folder, silent)
    raise RuntimeError(
        f"training: process {silent} has been silent for {ages[silent]:.0f} s "
        f"(hardware.silent_s is {limit_s:g}); its last word: {doing[silent]}\n{stack}"
    )


def _stack(folder: Path, process: int) -> str:
    """Ask a process where it stands, then kill it."""
    pid = int((folder / f"process_{process}.pid").read_text())
    try:
        if str(folder).encode() not in Path(f"/proc/{pid}/cmdline").read_bytes():
            return "it runs on another machine, or is gone"  # the id is another process's here
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        os.kill(pid, signal.SIGUSR1)
        time.sleep(0 if state == "T" else 0.5)
        stack = (folder / f"process_{process}.stack").read_text()
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return "it is gone"
    return "it was stopped by a signal (SIGSTOP), so it has no stack to show" if state == "T" else stack
