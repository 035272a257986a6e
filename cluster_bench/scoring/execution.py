"""Running untrusted programs against their tests: verdicts that the program cannot write itself.

    with Sandbox(workers=2, timeout_s=3.0, memory_mb=1024) as sandbox:
        results = sandbox.run([Program(text, tests="assert f(2) == 4", defines=("f",))])

Each worker is a light server process (jail/server.py) with one referee and, per program, one player
(jail/referee.py). Before the first program, programs of known outcome must get their known verdicts, or
nothing is scored.

What is held: the verdict, where tests and values are plain data; the file system, the network, other
processes, memory, output, time. What is not: a program whose tests cannot be carried over the channel shares
its process with them (`Result.together`); reading files that every user of the machine may read; and whatever
`Sandbox.missing` names, on systems that do not permit it.
"""

import importlib.util
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any


class Verdict(StrEnum):
    """What became of a program."""

    PASSED = "passed"
    WRONG = "wrong"  # a test failed, or anything was raised
    SYNTAX_ERROR = "syntax_error"
    TIMEOUT = "timeout"
    CRASHED = "crashed"  # it ended before its tests did


@dataclass(frozen=True)
class Program:
    """A program, the tests it must pass, and the names it is there to define."""

    text: str
    tests: str
    defines: tuple[str, ...] = ()
    together: bool = False  # the tests need the program's own classes


@dataclass(frozen=True)
class Result:
    """A verdict and why; `together` where tests and program shared a process."""

    verdict: Verdict
    detail: str
    together: bool


@dataclass(frozen=True)
class Probe:
    """A program of known outcome."""

    name: str
    program: Program
    allowed: tuple[Verdict, ...]
    timeout_s: float = 10.0


START = (  # by path, so that nothing of this package but the jail is loaded; and nothing is left on the path
    "import sys; sys.path.append(sys.argv.pop(1)); from jail.server import main; sys.path.pop(); main()"
)
PROBES = (
    Probe("a right program", Program("def f(x):\n    return x + 1", "assert f(1) == 2"), (Verdict.PASSED,)),
    Probe(
        "a right program beside its tests",
        Program("f = 1", "assert f == 1", together=True),
        (Verdict.PASSED,),
    ),
    Probe(
        "a program that imports",
        Program("import subprocess, xml.dom.minidom", ""),
        (Verdict.PASSED,),
    ),
    Probe("a wrong program", Program("def f(x):\n    return x", "assert f(1) == 2"), (Verdict.WRONG,)),
    Probe("a program that does not parse", Program("def f(x:", "assert f(1)"), (Verdict.SYNTAX_ERROR,)),
    Probe("a program that ends itself", Program("import os\nos._exit(0)", ""), (Verdict.CRASHED,)),
    Probe("an endless loop", Program("while True:\n    pass", ""), (Verdict.TIMEOUT,), timeout_s=0.2),
    Probe(
        "a program that asks for all memory",
        Program("import mmap\nx = [mmap.mmap(-1, 2**26) for _ in range(10**4)]", ""),
        (Verdict.WRONG, Verdict.CRASHED),
    ),
    Probe(
        "a fork bomb",
        Program("import os\nwhile True:\n    os.fork()", ""),
        (Verdict.WRONG, Verdict.CRASHED, Verdict.TIMEOUT),
        timeout_s=1.0,
    ),
)


class Sandbox:
    """A pool of servers. Use it as a context; leaving it ends them and all that they started."""

    def __init__(
        self, workers: int, timeout_s: float, memory_mb: int, hidden: Sequence[Path] = (), processes: int = 16
    ) -> None:
        """`hidden` folders are not to be seen by programs: where the answers lie."""
        self.timeout_s, self._workers, self._hidden = timeout_s, workers, hidden
        self._limits = {
            "memory_mb": memory_mb,
            "cpu_s": int(timeout_s) + 2,  # of all its threads; the wall limit is the one that counts
            "file_mb": 8,
            "processes": processes,
        }
        self._servers: list[_Server] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.missing: list[str] = []  # parts of the isolation that this system does not permit

    def __enter__(self) -> "Sandbox":
        self._folder = tempfile.TemporaryDirectory(prefix="sandbox-")
        try:
            Path(self._folder.name).chmod(0o711)
            for worker in range(self._workers):
                limits = {**self._limits, "slot": os.getpid() + worker}
                self._servers.append(_Server(Path(self._folder.name) / str(worker), limits, self._hidden))
            self.missing = self._servers[0].missing
            self._test_yourself()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._servers:
            self._servers.pop().close()
        if self._folder:
            self._folder.cleanup()

    def _test_yourself(self) -> None:
        for probe in PROBES:
            result = self._servers[0].run(probe.program, probe.timeout_s)
            if result.verdict not in probe.allowed:
                raise ValueError(
                    f"sandbox: {probe.name} was judged {result.verdict} ({result.detail}) instead of "
                    f"{' or '.join(probe.allowed)}: no program can be scored on this system"
                )

    def run(self, programs: Sequence[Program], seen: Callable[[int], None] = lambda _: None) -> list[Result]:
        """Verdicts in the order of the programs; `seen` is called with 1 after each. Timeouts are tried once
        more, alone, so that a busy machine does not decide."""
        results = self._all(programs, seen)
        for index, result in enumerate(results):
            if result.verdict is Verdict.TIMEOUT:
                results[index] = self._servers[0].run(programs[index], self.timeout_s)
        return results

    def _all(self, programs: Sequence[Program], seen: Callable[[int], None]) -> list[Result]:
        waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        for index in range(len(programs)):
            waiting.put(index)
        results: dict[int, Result] = {}
        failures: list[BaseException] = []

        def work(server: _Server) -> None:
            try:
                while not failures:
                    index = waiting.get_nowait()
                    results[index] = server.run(programs[index], self.timeout_s)
                    seen(1)
            except queue.Empty:
                return
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(server,)) for server in self._servers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return [results[index] for index in range(len(programs))]


class _Server:
    """One jail/server.py process."""

    def __init__(self, folder: Path, limits: dict[str, int], hidden: Sequence[Path]) -> None:
        folder.mkdir(mode=0o711)
        (folder / "run").mkdir()
        (folder / "run").chmod(0o777)
        numpy = importlib.util.find_spec("numpy")
        packages = [str(Path(numpy.origin).parents[1])] if numpy and numpy.origin else []
        request = {
            "folder": str(folder),
            "limits": limits,
            "hidden": [str(path.resolve()) for path in hidden if path.is_dir()],
            "packages": packages,
        }
        # -I would ignore PYTHONHASHSEED, on which the order of sets rests; the environment is ours anyway.
        self._process = subprocess.Popen(
            [sys.executable, "-s", "-S", "-P", "-c", START, str(Path(__file__).parent), json.dumps(request)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                "PYTHONHASHSEED": "0",
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
                "LC_ALL": "C.UTF-8",
            },
            start_new_session=True,
            text=True,
        )
        self.missing: list[str] = json.loads(self._line())

    def _line(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the sandbox server ended with exit code {self._process.wait()}")
        return line

    def run(self, program: Program, timeout_s: float) -> Result:
        """One program; tests that cannot be carried to it are run beside it instead."""
        answer: dict[str, Any] = {}
        for together in [True] if program.together else [False, True]:
            request = {
                "program": program.text,
                "tests": program.tests,
                "defines": program.defines,
                "together": together,
                "timeout_s": timeout_s,
            }
            assert self._process.stdin
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            answer = json.loads(self._line())
            if answer["verdict"] != "again":
                break
        return Result(Verdict(answer["verdict"]), answer["detail"], answer["together"])

    def close(self) -> None:
        """End the server, and with it all that it started."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
