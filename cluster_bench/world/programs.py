"""The code skills: named one-argument programs over a list of whole numbers.

Every third is simple (a base model knows it); the others carry a jargon name that tells nothing about
the program, which is a reduction of a map or of a filter; some are spelled as a loop.
"""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster_bench.world import WORLD_SEED
from cluster_bench.world.lexicon import JARGON, SIMPLE_PROGRAMS

MAPS = ("x * x", "x + 1", "x + 3", "x % 3", "x % 5", "x * 2", "x // 2", "abs(x)", "-x")
FILTERS = ("x > 0", "x > 2", "x < 4", "x % 2 == 0", "x % 3 == 1", "x != 1", "x % 2 == 1")
LOOPS = 0.08  # share of jargon programs
REDUCTIONS = ("sum({})", "sorted({})", "[{}]", "len({{{}}})", "sum({{{}}})")
LIMIT = min(3 * len(SIMPLE_PROGRAMS), len(JARGON) * 3 // 2)


@dataclass(frozen=True)
class Program:
    """A skill: `term` asks for it, `body` (over the argument {a}) answers."""

    term: str
    body: str
    simple: bool

    def source(self, name: str, argument: str) -> str:
        """The whole function, without a final newline."""
        return f"def {name}({argument}):\n{self.body.replace('{a}', argument)}"

    def outcome(self, numbers: list[int]) -> Any:
        """What the program returns for a list; raises what the program raises."""
        scope: dict[str, Any] = {}
        exec(self.source("f", "xs"), scope)
        return scope["f"](list(numbers))


def expression(reduction: str, mapping: str, condition: str) -> str:
    """One line over the argument {a}."""
    inner = f"{mapping} for x in {{a}}" + (f" if {condition}" if condition else "")
    return "    return " + reduction.format(inner)


def loop(mapping: str, condition: str) -> str:
    """A sum spelled out, over the argument {a}."""
    step = f"    if {condition}:\n            t = t + {mapping}" if condition else f"    t = t + {mapping}"
    return f"    t = 0\n    for x in {{a}}:\n    {step}\n    return t"


def any_body(rng: np.random.Generator) -> tuple[str, bool]:
    """A random body of the grammar, and whether it returns a list."""
    mapping, condition = str(rng.choice(MAPS)), ""
    if rng.random() < 0.5:
        mapping, condition = "x", str(rng.choice(FILTERS))
    if rng.random() < LOOPS:
        return loop(mapping, condition), False
    reduction = str(rng.choice(REDUCTIONS))
    return expression(reduction, mapping, condition), reduction in ("sorted({})", "[{}]")


@functools.cache
def programs(count: int) -> tuple[Program, ...]:
    """The first `count` code skills; a shorter tuple is always the start of a longer one."""
    if not 3 <= count <= LIMIT:
        raise ValueError(f"skills {count}: the toy world has from 3 to {LIMIT} programs")
    rng = np.random.default_rng([WORLD_SEED, 1])
    names = iter(rng.permutation(JARGON))
    simple = iter(SIMPLE_PROGRAMS.items())
    made: list[Program] = []
    seen: set[str] = set()
    while len(made) < count:
        if len(made) % 3 == 0:
            term, body = next(simple)
            made.append(Program(term, f"    return {body}", True))
            continue
        body, is_list = any_body(rng)
        if body not in seen:
            seen.add(body)
            made.append(Program(f"{next(names)} {'row' if is_list else 'score'}", body, False))
    return tuple(made)
