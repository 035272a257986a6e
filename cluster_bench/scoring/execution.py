"""Running untrusted programs against their tests: verdicts that the program cannot write itself.

    with Sandbox(workers=2, timeout_s=3.0, memory_mb=1024) as sandbox:
        results = sandbox.run([Program(text, tests="assert f(2) == 4", defines=("f",))])

Each worker is a light server process (jail/server.py) with one referee and, per program, one player
(jail/referee.py). Before the first program, programs of known outcome must get their known verdicts, or
nothing is scored.

What is held: the verdict; the file system, of which programs see the system and Python; the network, other
processes, memory, output, time. Where a system does not permit a part of it, the sandbox says which and
refuses, unless it is told to be `unsafe`.
"""

import os
import queue
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from cluster_bench.scoring.programs import PROBES, Program, Result, Verdict
from cluster_bench.scoring.worker import Worker

__all__ = ["PROBES", "Program", "Result", "Sandbox", "Verdict"]

MEANING = {  # of what may be missing; a program could then
    "process ids": "see and signal processes of this user",
    "process limit": "start processes without limit",
    "network": "use the network",
    "read-only files": "write and delete files of this user",
    "covered files": "read files of this user",
    "own user": "act as this user",
    "hidden /proc": "read about other processes",
    "shared memory": "reach shared memory of others",
    "host name": "change the host name",
    "system calls": "use any system call",
}


class Sandbox:
    """A pool of servers. Use it as a context; leaving it ends them and all that they started."""

    def __init__(
        self,
        workers: int,
        timeout_s: float,
        memory_mb: int,
        hidden: Sequence[Path] = (),
        unsafe: bool = False,
    ) -> None:
        """`hidden` folders are not to be seen by programs: where the answers lie. `unsafe`: go on where a
        part of the isolation is not permitted."""
        self.timeout_s, self._workers, self._hidden, self._unsafe = timeout_s, workers, hidden, unsafe
        self._limits = {
            "memory_mb": memory_mb,
            "cpu_s": int(timeout_s) + 2,  # of all its threads; the wall limit is the one that counts
            "file_mb": 8,
            "processes": 16,
        }
        self._servers: list[Worker] = []
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self._pool: ThreadPoolExecutor | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.missing: list[str] = []  # parts of the isolation that this system does not permit

    def __enter__(self) -> "Sandbox":
        self._folder = tempfile.TemporaryDirectory(prefix="sandbox-")
        try:
            Path(self._folder.name).chmod(0o711)
            for number in range(self._workers):
                limits = {**self._limits, "slot": os.getpid() + number}
                self._servers.append(Worker(Path(self._folder.name) / str(number), limits, self._hidden))
                self._idle.put(self._servers[-1])
            self.missing = self._servers[0].missing
            if self.missing and not self._unsafe:
                raise ValueError(_refusal(self.missing))
            self._test_yourself()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self._pool = ThreadPoolExecutor(self._workers)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)
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

    def submit(self, program: Program) -> Future[Result]:
        """The verdict on a program, to come; a timeout may be the machine's fault: see `settle`."""
        assert self._pool, "a sandbox is used as a context"
        return self._pool.submit(self._run, program)

    def settle(
        self,
        programs: Sequence[Program],
        futures: Sequence[Future[Result]],
        seen: Callable[[int], None] = lambda _: None,
    ) -> list[Result]:
        """The verdicts on programs that were submitted; `seen` is called with 1 for each that has ended.
        Timeouts are tried once more, alone, so that a busy machine does not decide. ValueError for tests that
        cannot be run."""
        for future in futures:
            future.add_done_callback(lambda _: seen(1))
        results = [future.result() for future in futures]
        for index, result in enumerate(results):
            if result.verdict is Verdict.TIMEOUT:
                results[index] = self._run(programs[index])
        return results

    def run(self, programs: Sequence[Program], seen: Callable[[int], None] = lambda _: None) -> list[Result]:
        """Verdicts in the order of the programs; `seen` as in `settle`."""
        return self.settle(programs, [self.submit(program) for program in programs], seen)

    def _run(self, program: Program) -> Result:
        server = self._idle.get()
        try:
            return server.run(program, self.timeout_s)
        finally:
            self._idle.put(server)


def _refusal(missing: Sequence[str]) -> str:
    meanings = [f"{part} (a program could {MEANING.get(part, 'read the answers')})" for part in missing]
    return (
        f"sandbox: this system does not permit {', '.join(meanings)}; "
        "scoring.unsafe=true runs generated programs regardless"
    )
