"""Times of arms that take turns."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Reading:
    """The least of the rounds, each on its own: CPU time of this process, and wall time."""

    cpu: float
    wall: float


def interleaved(arms: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Reading]:
    """Run every arm once a round, in turn."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name, arm in arms.items():
            cpu, wall = time.process_time(), time.perf_counter()
            arm()
            times[name].append((time.process_time() - cpu, time.perf_counter() - wall))
    return {name: Reading(min(c for c, _ in t), min(w for _, w in t)) for name, t in times.items()}
