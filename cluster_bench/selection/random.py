"""The control that every method has to beat: rows drawn without looking at them."""

from typing import Literal

import numpy as np
from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Clusters, Selection, Tokens
from cluster_bench.selection.balanced import Balanced, Keep, check_ratio


@dataclass(frozen=True, config=STRICT)
class Random:
    """As many random rows as `Balanced` keeps at the same ratio, or rows of as many tokens.

    Rows come in a random order; with `tokens` they are taken up to the count whose total of tokens,
    prompt and response, is nearest to that of the balanced rows (the smaller of two equally near). The
    clusters decide how many, never which.
    """

    match: Literal["rows", "tokens"]
    ratio: float  # of the smallest cluster, in (0, 1]
    keep: Keep  # of the balanced rows whose tokens are matched
    seed: int

    def __post_init__(self) -> None:
        check_ratio(self.ratio)

    def __call__(self, tokens: Tokens, clusters: Clusters) -> Selection:
        order = np.random.default_rng(self.seed).permutation(np.flatnonzero(clusters.labels >= 0))
        model = Balanced(self.ratio, self.keep, self.seed)(tokens, clusters).rows
        count = len(model)
        if self.match == "tokens":
            totals = np.cumsum(tokens.lengths[order])
            count = int(np.abs(totals - tokens.lengths[model].sum()).argmin()) + 1
        return Selection(np.sort(order[:count]), uses_features=False)
