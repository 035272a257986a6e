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
    Contamination,
    Corpus,
    Features,
    Model,
    Scores,
    Selection,
    Soundness,
    Tokens,
)
from cluster_bench.config import Experiment
from cluster_bench.store import Node, Store, job, node


@dataclass(frozen=True)
class Run:
    """Every artefact of one experiment, in the order of the walk."""

    corpus: Node[Corpus]
    benchmarks: Node[Benchmarks]
    soundness: Node[Soundness]
    contamination: Node[Contamination]
    decontaminated: Node[Corpus] | None  # where dataset.decontaminate asks for it
    model: Node[Model]
    tokens: Node[Tokens]
    features: Node[Features]
    clusters: Node[Clusters]
    selection: Node[Selection]
    allocation: Node[Allocation]
    checkpoint: Node[Checkpoint]
    scores: Node[Scores]

    @property
    def nodes(self) -> dict[str, Node[Any]]:
        """The artefacts by name."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: node for name, node in found.items() if node is not None}


def walk(exp: Experiment) -> Run:
    """Lay out the run of an experiment without running any of it."""
    corpus = node("corpus.v1", Corpus, exp.dataset)
    benchmarks = job("benchmarks.v1", Benchmarks, exp.benchmarks)
    soundness = job("soundness.v1", Soundness, exp.soundness, benchmarks)
    contamination = node("contamination.v1", Contamination, exp.contamination, corpus, benchmarks)
    clean = None
    if exp.decontaminate:
        clean = node("decontaminated.v1", Corpus, exp.decontaminate, corpus, contamination)
    model = job("model.v1", Model, exp.model)
    tokens = node("tokens.v1", Tokens, exp.tokens, clean or corpus, model)
    features = job("features.v1", Features, exp.features, tokens, model)
    clusters = node("clusters.v1", Clusters, exp.clusters, features)
    selection = node("selection.v1", Selection, exp.selection, tokens, clusters)
    allocation = node("allocation.v1", Allocation, exp.allocation, tokens, clusters, selection)
    checkpoint = job("training.v1", Checkpoint, exp.training, tokens, model, allocation)
    scores = job("scores.v3", Scores, exp.scoring, checkpoint, benchmarks)
    before = (corpus, benchmarks, soundness, contamination, clean)
    return Run(*before, model, tokens, features, clusters, selection, allocation, checkpoint, scores)


def plan(run: Run, store: Store) -> str:
    """One line per artefact: whether the store has it, its stage, its address, what makes it."""
    return "\n".join(
        f"{'have' if store.has(n) else 'make'}  {n.stage:<17} {n.key}  {type(n.make).__name__}"
        for n in run.nodes.values()
    )
