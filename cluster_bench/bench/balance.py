"""Target 8, modelled: how long ranks wait for each other, by a cost table measured in the same run."""

from typing import Any

import numpy as np

from cluster_bench.allocation import ALLOCATORS
from cluster_bench.artifacts import Array, Clusters, Selection
from cluster_bench.bench.inputs import rows
from cluster_bench.bench.loops import RowCost
from cluster_bench.training.audit import idle
from cluster_bench.training.plan import build_plan

ROWS, BATCH = 8192, 512
CLUSTERS = 32
RANDOM, TOKENS = "random sharding", f"{CLUSTERS} clusters on the ranks by tokens"
OURS = f"{CLUSTERS} clusters on the ranks by what rows take"


def idle_by_allocation(ranks: int, cost_of: RowCost) -> dict[str, float]:
    """Share of the ranks' time spent waiting; clusters whose lengths differ up to fourfold."""
    tokens = rows(ROWS, seed=8)
    rng = np.random.default_rng(8)
    order = np.argsort(np.log(tokens.lengths) + rng.normal(0, 1.0, ROWS))  # lengths tell clusters, loosely
    labels = np.empty(ROWS, np.int64)
    labels[order] = np.arange(ROWS) * CLUSTERS // ROWS
    few = labels * ranks // CLUSTERS
    cost = cost_of(tokens.lengths)
    found: dict[str, float] = {}
    cut = {"weighted": True, "slack": 0.01, "seed": 0}
    options: dict[str, tuple[str, Array, dict[str, Any]]] = {
        RANDOM: ("shuffled", few, {"weighted": False, "seed": 0}),
        "one cluster per rank, as published": ("cluster_per_rank", few, {}),
        TOKENS: ("clusters_by_tokens", labels, {**cut, "row_cost": 0.0, "square_cost": 0.0}),
        OURS: ("clusters_by_tokens", labels, {**cut, **cost_of.in_tokens}),
    }
    for name, (kind, of_row, fields) in options.items():
        k = int(of_row.max()) + 1
        unused = np.zeros(ROWS, np.float32)
        clusters = Clusters(of_row, np.zeros((k, 1), np.float32), unused, unused > 0, 0.0)
        allocation = ALLOCATORS[kind](ranks=ranks, **fields)(
            tokens, clusters, Selection(np.arange(ROWS), False)
        )
        found[name] = idle(build_plan(allocation, 1, BATCH, 0), cost)
    return found
