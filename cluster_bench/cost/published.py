"""The hours that a digest of the paper (arXiv 2609.12584) reports, on 4 H100; method by method.

Nothing else of its training hours is published: not 13B, not 8 GPUs, not Evol-Instruct, nor whether the time
of the selection is in them.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """One published run."""

    dataset: str  # the option of `dataset=`
    model: str  # the option of `model=`
    method: str
    kept: float  # share of the rows
    hours: float


PUBLISHED = (
    Published("oss_instruct", "codellama_7b", "full", 1.0, 1.13),
    Published("oss_instruct", "codellama_7b", "CluSTER r=1.00", 0.79, 0.92),
    Published("oss_instruct", "codellama_7b", "CluSTER r=0.75", 0.59, 0.69),
    Published("oss_instruct", "codellama_7b", "CluSTER r=0.50", 0.40, 0.47),
    Published("medinstruct", "llama2_7b", "full", 1.0, 0.99),
    Published("medinstruct", "llama2_7b", "CluSTER r=0.50", 0.31, 0.30),
)


def hours(dataset: str, model: str, method: str) -> float | None:
    """What is published of a run on 4 H100."""
    for run in PUBLISHED:
        if (run.dataset, run.model, run.method) == (dataset, model, method):
            return run.hours
    return None
