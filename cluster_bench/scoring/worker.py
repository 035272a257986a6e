"""The caller's side of one jail: a server process (jail/server.py) that runs programs one at a time."""

import contextlib
import importlib.util
import json
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cluster_bench.scoring.jail.carrying import receive, send
from cluster_bench.scoring.programs import Program, Result, Verdict

START = (  # by path, so that nothing of this package but the jail is loaded; and nothing is left on the path
    "import sys; sys.path.append(sys.argv.pop(1)); from jail.server import main; sys.path.pop(); main()"
)
ORDER = struct.Struct("<d?")  # seconds, and whether packages are needed, as jail/server.py reads it
ENDS = {b"t": Verdict.TIMEOUT, b"c": Verdict.CRASHED}  # of programs that were not judged
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "LC_ALL": "C.UTF-8",
}


class Worker:
    """One jail/server.py process; `missing` is what the system does not permit of its isolation."""

    def __init__(self, folder: Path, limits: dict[str, int], hidden: Sequence[Path]) -> None:
        folder.mkdir(mode=0o711)
        (folder / "run").mkdir()
        (folder / "run").chmod(0o777)
        numpy = importlib.util.find_spec("numpy")
        request = {
            "folder": str(folder),
            "limits": limits,
            "hidden": [str(path) for path in _outermost(hidden)],
            "packages": [str(Path(numpy.origin).parents[1])] if numpy and numpy.origin else [],
        }
        package = str(Path(__file__).parent)
        self._control, theirs = socket.socketpair()
        # -I would ignore PYTHONHASHSEED, on which the order of sets rests; the environment is ours anyway.
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *["-s", "-S", "-P", "-c"], START, package, json.dumps(request)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env=ENVIRONMENT,
                start_new_session=True,
            )
        try:
            self.missing: list[str] = receive(self._control)["missing"]
        except (EOFError, OSError) as error:
            self.close()
            raise RuntimeError(
                f"a sandbox server did not start: exit code {self._process.returncode}"
            ) from error

    def run(self, program: Program, timeout_s: float) -> Result:
        """One program. ValueError where its tests cannot be run."""
        ours, theirs = socket.socketpair()  # the paper, which only the referee reads
        with ours:
            with theirs, contextlib.suppress(OSError):  # no server
                order = ORDER.pack(timeout_s, "numpy" in program.text or "numpy" in program.tests)
                socket.send_fds(self._control, [order], [theirs.fileno()])
            with contextlib.suppress(OSError):  # no referee, which the server tells
                send(ours, {"program": program.text, "tests": program.tests, "defines": program.defines})
            end = self._control.recv(1)
            if not end:
                raise RuntimeError(f"a sandbox server ended with exit code {self._process.wait()}")
            if end in ENDS:
                return Result(ENDS[end], "")
            answer = receive(ours)
        if answer["verdict"] == "refused":
            raise ValueError(f"a program cannot be judged: {answer['detail']}")
        return Result(Verdict(answer["verdict"]), answer["detail"])

    def close(self) -> None:
        """End the server, and with it all that it started."""
        self._control.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _outermost(folders: Sequence[Path]) -> list[Path]:
    """The folders that are there and do not lie in another of them, which hides them as well."""
    there = {path.resolve() for path in folders if path.is_dir()}
    return sorted(path for path in there if not there & set(path.parents))
