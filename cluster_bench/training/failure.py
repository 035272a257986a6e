"""Why a torchrun job failed, in one message that names the rank or the machine."""

import re
import signal
from collections.abc import Mapping
from pathlib import Path


def what_failed(folder: Path, ends: Mapping[str, int | None]) -> str:
    """The machine that died or is silent, else the first rank's own traceback or signal, else the log's end.

    `ends` says how torchrun ended on each machine, by its name, in the order of their numbers: 0 where it has
    not, None where the machine is gone. The name is empty where there is only one.
    """
    for name, code in ends.items():
        if code is None:
            return f"training: {name} has gone silent; its log is {_log(folder, ends, name)}"
        if code < 0:
            who = f"{name}: torchrun" if name else "torchrun"
            return f"training: {who} was ended by {signal.Signals(-code).name}"
    for name in ends:
        log = _log(folder, ends, name)
        said = log.read_text() if log.exists() else ""
        ended = re.search(r"Root Cause.*?rank\s+: (\d+).*?exitcode\s+: -(\d+)", said, re.DOTALL)
        if ended and int(ended[2]) != signal.SIGTERM:  # torchrun's own way to end the others
            what = f"process {ended[1]}{f' on {name}' if name else ''}"
            return f"training: {what} was ended by {signal.Signals(int(ended[2])).name}; the log is {log}"
    errors = sorted(folder.glob("process_*.error"), key=lambda path: path.stat().st_mtime_ns)
    if errors:
        process = errors[0].stem.removeprefix("process_")
        return f"training: process {process} failed:\n{errors[0].read_text()}"
    own = (folder / "torchrun.log").read_text()
    return f"training: torchrun ended with code {next(iter(ends.values()))}:\n{own[-2000:]}"


def log_of(folder: Path, node: int) -> Path:
    """The output of torchrun on a machine."""
    return folder / (f"torchrun_{node}.log" if node else "torchrun.log")


def _log(folder: Path, ends: Mapping[str, int | None], name: str) -> Path:
    return log_of(folder, list(ends).index(name))
