"""The whole benchmark, top to bottom.

    dataset -> corpus -> tokens -> features -> clusters -> selection -> allocation -> checkpoint -> scores

Each arrow is one function of the artefacts named on its line in `walk`; each artefact lies in the store,
at an address that is a hash of its recipe. `walk` computes nothing.
"""

from dataclasses import dataclass, fields
from typing import Any

from cluster_bench.artifacts import (
    Allocation,
    Benchmarks,
    Checkpoint,
    Clusters,
    Corpus,
    Features,
    Model,
    Scores,
    Selection,
    Tokens,
)
from cluster_bench.config import Experiment
from cluster_bench.store import Node, Store, job, node


@dataclass(frozen=True)
class Run:
    """Every artefact of one experiment, in the order of the walk."""

    corpus: Node[Corpus]
    model: Node[Model]
    tokens: Node[Tokens]
    features: Node[Features]
    clusters: Node[Clusters]
    selection: Node[Selection]
    allocation: Node[Allocation]
    checkpoint: Node[Checkpoint]
    benchmarks: Node[Benchmarks]
    scores: Node[Scores]

    @property
    def nodes(self) -> dict[str, Node[Any]]:
        """The artefacts by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def walk(exp: Experiment) -> Run:
    """Lay out the run of an experiment without running any of it."""
    corpus = node("corpus.v1", Corpus, exp.dataset)
    model = job("model.v1", Model, exp.model)
    tokens = node("tokens.v1", Tokens, exp.tokens, corpus, model)
    features = job("features.v1", Features, exp.features, tokens, model)
    clusters = node("clusters.v1", Clusters, exp.clusters, features)
    selection = node("selection.v1", Selection, exp.selection, tokens, clusters)
    allocation = node("allocation.v1", Allocation, exp.allocation, tokens, clusters, selection)
    checkpoint = job("training.v1", Checkpoint, exp.training, tokens, model, allocation)
    benchmarks = job("benchmarks.v1", Benchmarks, exp.benchmarks)
    scores = job("scores.v1", Scores, exp.scoring, checkpoint, benchmarks)
    return Run(
        corpus, model, tokens, features, clusters, selection, allocation, checkpoint, benchmarks, scores
    )


def plan(run: Run, store: Store) -> str:
    """One line per artefact: whether the store has it, its stage, its address, what makes it."""
    return "\n".join(
        f"{'have' if store.has(n) else 'make'}  {n.stage:<14} {n.key}  {type(n.make).__name__}"
        for n in run.nodes.values()
    )
