"""Target 10: what the whole method saves of three epochs of training, its selection included, and why."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from cluster_bench.artifacts import Array, Features, Model, Tokens
from cluster_bench.bench.balance import OURS, RANDOM
from cluster_bench.bench.clock import Reading
from cluster_bench.bench.lines import Line
from cluster_bench.clusters.capped_kmeans import CappedKMeans
from cluster_bench.features import forward
from cluster_bench.features.response_gradient import ResponseGradient
from cluster_bench.selection.balanced import Balanced

EPOCHS, SHARE, RANKS = 3, 0.31, 4


@dataclass(frozen=True)
class Chosen:
    """The rows that balanced selection keeps, as many at random, and what choosing costs."""

    rows: Int64[Array, " m"]
    random: Int64[Array, " m"]
    features: Callable[[], object]  # an arm
    clustering_s: float  # CPU


def choose(tokens: Tokens, model: Model) -> Chosen:
    """Select by the paper's pipeline, at the ratio that comes nearest to 31% of the rows."""
    net, extractor = forward.load(model.weights, "float32", "cpu"), ResponseGradient(4096, "float32")

    def features() -> Array:
        values = np.zeros((len(tokens), 192), np.float32)
        for part in extractor.batches(tokens.lengths):
            ids = [tokens.ids[tokens.starts[i] : tokens.starts[i + 1]] for i in part]
            prompts = (tokens.answers - tokens.starts[:-1])[part]
            values[part] = forward.response_gradients(net, ids, prompts)
        return values

    values = features()
    norms = np.linalg.norm(values, axis=1)
    made = Features(values / norms[:, None], norms, 0.0)
    kmeans = CappedKMeans(RANKS, 1.5, 10, 300, 0, 0.05)
    kmeans(made)  # imports
    begin = time.process_time()
    clusters = kmeans(made)
    seconds = time.process_time() - begin
    ratio = min(1.0, SHARE * len(tokens) / (RANKS * int(clusters.sizes.min())))
    kept = Balanced(ratio, "far", 0)(tokens, clusters).rows
    drawn = np.sort(np.random.default_rng(0).choice(len(tokens), len(kept), replace=False))
    return Chosen(kept, drawn, features, seconds)


def lines(
    times: Mapping[str, Reading], chosen: Chosen, tokens: Tokens, idle: Mapping[str, float]
) -> list[Line]:
    """The saving against each baseline on one process, its split in points, and four ranks modelled."""
    cpu = {name: reading.cpu for name, reading in times.items()}
    selection = cpu["features"] + chosen.clustering_s
    ours = EPOCHS * cpu["fast, kept"] + selection
    rows, kept = len(tokens), len(chosen.rows)
    share = tokens.lengths[chosen.rows].sum() / tokens.lengths.sum()
    note = f"{kept / rows:.0%} of rows, {share:.0%} of tokens; selection {selection / cpu['fast']:.2f} epochs"
    random = EPOCHS * cpu["fast, random"]
    baselines = {
        "10a": ("equal trainer", "fast", ">= 0.57"),
        "10b": ("micro-batch 1", "one row", ">= 0.696"),
        "10c": ("padded random batches", "padded", ">= 0.84"),
    }
    out: list[Line] = []
    for target, (name, key, wanted) in baselines.items():
        full = EPOCHS * cpu[key]
        figure = f"saving against {name}, selection included"
        split = {
            "as many rows at random, by the fast loop": 1 - random / full,
            "of it packing": 1 - cpu["fast"] / cpu[key],
            "of it data": (cpu["fast"] - cpu["fast, kept"]) / cpu[key],
            "of it selection": -selection / full,
        }
        out.append(Line(target, figure, 1 - ours / full, wanted, timed=True, note=note))
        out += [Line("", f"  {part}", value) for part, value in split.items()]
    return [*out, *_on_ranks(cpu["fast"], cpu["fast, kept"], selection, idle)]


def _on_ranks(fast: float, kept: float, selection: float, idle: Mapping[str, float]) -> list[Line]:
    """The same against an equal trainer on several ranks, where balance counts too."""
    waits, levelled = idle[RANDOM], idle[OURS]
    full = EPOCHS * fast / RANKS / (1 - waits)
    ours = EPOCHS * kept / RANKS / (1 - levelled) + selection
    unbalanced = EPOCHS * kept / RANKS / (1 - waits) + selection
    name = f"saving on {RANKS} ranks against an equal trainer"
    return [
        Line("", name, 1 - ours / full, note="modelled; features by one process"),
        Line("", "  of it balance", (unbalanced - ours) / full, note="modelled"),
    ]
