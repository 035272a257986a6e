"""This machine alone: torchrun meets on a port of its own that the system chooses."""

from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT


@dataclass(frozen=True, config=STRICT)
class Local:
    """Nothing to say."""
