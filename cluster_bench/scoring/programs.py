"""What the sandbox runs and what it says: programs with their tests, verdicts, programs of known outcome."""

from dataclasses import dataclass
from enum import StrEnum


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


@dataclass(frozen=True)
class Result:
    """A verdict and why."""

    verdict: Verdict
    detail: str


@dataclass(frozen=True)
class Probe:
    """A program of known outcome."""

    name: str
    program: Program
    allowed: tuple[Verdict, ...]
    timeout_s: float = 10.0


def _alone(text: str) -> Program:
    return Program(text, "assert True")


PROBES = (
    Probe("a right program", Program("def f(x):\n    return x + 1", "assert f(1) == 2"), (Verdict.PASSED,)),
    Probe("a program that imports", _alone("import subprocess, xml.dom.minidom"), (Verdict.PASSED,)),
    Probe("a wrong program", Program("def f(x):\n    return x", "assert f(1) == 2"), (Verdict.WRONG,)),
    Probe("a program that does not parse", Program("def f(x:", "assert f(1)"), (Verdict.SYNTAX_ERROR,)),
    Probe("a program that ends itself", _alone("import os\nos._exit(0)"), (Verdict.CRASHED,)),
    Probe("an endless loop", _alone("while True:\n    pass"), (Verdict.TIMEOUT,), timeout_s=0.2),
    Probe(
        "a program that asks for all memory",
        _alone("import mmap\nx = [mmap.mmap(-1, 2**26) for _ in range(10**4)]"),
        (Verdict.WRONG, Verdict.CRASHED),
    ),
    Probe(
        "a fork bomb",
        _alone("import os\nwhile True:\n    os.fork()"),
        (Verdict.WRONG, Verdict.CRASHED, Verdict.TIMEOUT),
        timeout_s=1.0,
    ),
)
