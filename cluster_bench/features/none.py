"""For methods that look at no feature: every row is the same point, and no model is run."""

import numpy as np
from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Features, Model, Tokens, Workspace


@dataclass(frozen=True, config=STRICT)
class NoFeature:
    """The vector (1) for every row, at no cost."""

    def __call__(self, tokens: Tokens, model: Model, work: Workspace) -> Features:
        ones = np.ones(len(tokens), dtype=np.float32)
        return Features(values=ones[:, None], norms=ones, seconds=0.0)
