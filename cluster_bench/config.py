"""The typed experiment: composed YAML in, validated methods out, or the line that is wrong.

A DictConfig goes no further than `structure`. Every method is a frozen pydantic dataclass that takes no
field it does not know; `kind` chooses the class from the group's registry.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from pydantic import ValidationError

from cluster_bench.allocation import ALLOCATORS
from cluster_bench.artifacts import (
    Allocation,
    Benchmarks,
    Checkpoint,
    Clusters,
    Contamination,
    Corpus,
    Features,
    Machine,
    Model,
    Scores,
    Selection,
    Soundness,
    Tokens,
    Workspace,
)
from cluster_bench.benchmarks import BENCHMARKS
from cluster_bench.clusters import CLUSTERERS
from cluster_bench.contamination import DETECTORS
from cluster_bench.contamination.decontaminate import Decontaminate
from cluster_bench.corpora import CORPORA
from cluster_bench.features import EXTRACTORS
from cluster_bench.launch import LAUNCHERS
from cluster_bench.launch.nodes import Nodes
from cluster_bench.launch.slurm import Slurm
from cluster_bench.models import MODELS
from cluster_bench.scoring import SCORERS
from cluster_bench.scoring.soundness import ReferenceSolutions
from cluster_bench.selection import SELECTORS
from cluster_bench.tokens import TOKENIZERS
from cluster_bench.training import TRAINERS


@dataclass(frozen=True)
class Experiment:
    """One method for each stage."""

    dataset: Callable[[], Corpus]
    model: Callable[[Workspace], Model]
    tokens: Callable[[Corpus, Model], Tokens]
    features: Callable[[Tokens, Model, Workspace], Features]
    clusters: Callable[[Features], Clusters]
    selection: Callable[[Tokens, Clusters], Selection]
    allocation: Callable[[Tokens, Clusters, Selection], Allocation]
    training: Callable[[Tokens, Model, Allocation, Workspace], Checkpoint]
    benchmarks: Callable[[Workspace], Benchmarks]
    scoring: Callable[[Checkpoint, Benchmarks, Workspace], Scores]
    contamination: Callable[[Corpus, Benchmarks], Contamination]
    soundness: Callable[[Benchmarks, Workspace], Soundness]
    decontaminate: Callable[[Corpus, Contamination], Corpus] | None = None  # not every corpus is


METHODS: dict[str, Mapping[str, type]] = {
    "dataset": CORPORA,
    "model": MODELS,
    "tokens": TOKENIZERS,
    "features": EXTRACTORS,
    "clusters": CLUSTERERS,
    "selection": SELECTORS,
    "allocation": ALLOCATORS,
    "training": TRAINERS,
    "benchmarks": BENCHMARKS,
    "scoring": SCORERS,
    "contamination": DETECTORS,
}

ELSEWHERE = ("nodes", "meeting", "unsafe")  # fields of a machine that are set in `launcher` and `scoring`


def structure(tree: Mapping[str, Any]) -> Experiment:
    """Turn the composed configuration into typed methods; a ValueError says which line of it is wrong."""
    dataset = dict(tree["dataset"])
    asked = dataset.pop("decontaminate", False)  # decides a stage after the corpus
    if not isinstance(asked, bool):
        raise ValueError(f"dataset.decontaminate: must be true or false, got {asked!r}")
    scoring = {name: value for name, value in tree["scoring"].items() if name not in ("unsafe", "data")}
    nodes = {**tree, "dataset": dataset, "scoring": scoring}
    methods = {group: build(group, METHODS[group], nodes[group]) for group in METHODS}
    soundness = ReferenceSolutions(scoring["timeout_s"], scoring["memory_mb"])
    return Experiment(**methods, soundness=soundness, decontaminate=Decontaminate() if asked else None)


def machine(tree: Mapping[str, Any]) -> Machine:
    """What `hardware`, `launcher` and `scoring.unsafe` say; `ranks` is a method's, `gpu` the cost model's."""
    values = {name: value for name, value in tree["hardware"].items() if name not in ("ranks", "gpu")}
    known = [field.name for field in fields(Machine) if field.name not in ELSEWHERE]
    for name in values:
        if name not in known:
            raise ValueError(f"hardware.{name}: no such field{_hint(name, ['ranks', *known])}")
    if not 1 <= values["processes"] <= tree["hardware"]["ranks"]:
        most = tree["hardware"]["ranks"]
        raise ValueError(f"hardware.processes: {values['processes']} is not between 1 and ranks {most}")
    values["unsafe"] = tree["scoring"]["unsafe"]
    place = build("launcher", LAUNCHERS, tree["launcher"])
    nodes = place.nodes if isinstance(place, Nodes | Slurm) else 1
    if values["processes"] % nodes:
        raise ValueError(
            f"hardware.processes: {values['processes']} does not divide over launcher.nodes {nodes}"
        )
    here = Machine(**values)
    return replace(here, nodes=nodes, meeting=str(place.meeting)) if isinstance(place, Nodes) else here


def build(group: str, kinds: Mapping[str, type], node: Mapping[str, Any]) -> Any:
    """Make one method from its line of the configuration.

    >>> from cluster_bench.selection import SELECTORS
    >>> build("selection", SELECTORS, {"kind": "balance"})
    Traceback (most recent call last):
    ...
    ValueError: selection.kind: 'balance' is not one of all, balanced, oversampled, random
    """
    values = dict(node)
    kind = kinds.get(values.pop("kind", ""))
    if kind is None:
        raise ValueError(f"{group}.kind: {node.get('kind')!r} is not one of {', '.join(sorted(kinds))}")
    try:
        return kind(**values)
    except ValidationError as error:
        raise ValueError(_first_line(group, kind, error)) from None


def _first_line(group: str, kind: type, error: ValidationError) -> str:
    """The first thing that is wrong, with the field's full name and the way out."""
    first = min(error.errors(), key=lambda e: e["type"] != "unexpected_keyword_argument")  # a typo says most
    where = ".".join(str(part) for part in (group, *first["loc"]))
    known = [field.name for field in fields(kind)]
    match first["type"]:
        case "unexpected_keyword_argument":
            return f"{where}: {kind.__name__} has no such field{_hint(str(first['loc'][-1]), known)}"
        case "missing" | "missing_argument":
            return f"{where}: missing; {kind.__name__} takes {', '.join(known)}"
        case "value_error":
            return f"{where}: {str(first['msg']).removeprefix('Value error, ')}"
        case _:
            return f"{where}: {first['msg'].lower()}, got {first['input']!r}"


def _hint(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    takes = f"; it takes {', '.join(known)}"
    return f"; did you mean {near[0]!r}?" if near else takes
