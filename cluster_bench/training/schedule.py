"""The learning rate of a step, as a pure function, so that a resumed run cannot drift."""

import math
from typing import Literal


def learning_rate(
    step: int, steps: int, peak: float, warmup: float, schedule: Literal["linear", "cosine"]
) -> float:
    """Rise linearly over the warm-up, then fall to 0 at `steps`.

    `warmup` counts steps; below 1 it is a share of all steps. Step 0 already moves.

    >>> [round(learning_rate(s, 4, 1.0, 2.0, "linear"), 2) for s in range(4)]
    [0.5, 1.0, 1.0, 0.5]
    """
    rise = math.ceil(warmup * steps) if warmup < 1 else int(warmup)
    if step < rise:
        return peak * (step + 1) / rise
    done = (step - rise) / max(steps - rise, 1)
    return peak * (1 - done) if schedule == "linear" else peak * 0.5 * (1 + math.cos(math.pi * done))
