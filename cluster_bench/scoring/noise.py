"""The noise floor: how far a score moves by what should not move it, the batch and who shares it."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT
from cluster_bench.scoring.asking import Questions
from cluster_bench.scoring.outcomes import Record


@dataclass(frozen=True, config=STRICT)
class Noise:
    """A second batch size and a second order of the questions, on the first items of each benchmark."""

    batch_size: int
    seed: int  # of the other order; the first is 0
    items: int

    def __post_init__(self) -> None:
        if min(self.batch_size, self.seed) < 1 or self.items < 2:
            raise ValueError(f"noise: batch_size and seed must be above 0 and items above 1, got {self}")


def floor(
    noise: Noise | None,
    questions: Questions,
    records: Mapping[str, list[Record]],
    answer: Callable[[Questions], dict[str, list[Record]]],
) -> dict[str, dict[str, float | int]]:
    """Ask the first items again in the three other ways of two batch sizes and two orders.

    Per benchmark: `items`, `spread` (the largest accuracy minus the smallest, in [0, 1]), and `changed`
    (items whose verdict is not the same in all four ways). Nothing where it is not measured.
    """
    if noise is None:
        return {}
    ways = [(noise.batch_size, 0), (questions.batch_size, noise.seed), (noise.batch_size, noise.seed)]
    few = replace(questions, first=noise.items)
    again = [answer(replace(few, batch_size=batch, seed=seed)) for batch, seed in ways]
    found: dict[str, dict[str, float | int]] = {}
    for name in questions.benchmarks:
        passed = [[one["verdict"] == "passed" for one in run[name]] for run in again]
        same = [one["item"] for one in again[0][name]]
        passed.append([records[name][item]["verdict"] == "passed" for item in same])
        shares = [sum(of) / len(of) for of in passed]
        changed = sum(len(set(of)) > 1 for of in zip(*passed, strict=True))
        found[name] = {"items": len(same), "spread": max(shares) - min(shares), "changed": changed}
    return found
