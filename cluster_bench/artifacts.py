"""What flows between the stages: one frozen dataclass per stage, of arrays and plain values.

Axes, throughout the package: n usable rows, t tokens, d feature dimensions, k clusters, m selected rows.
A stage reads the artefacts of the stages before it and returns the next; `save` and `load` are how the
store keeps one in a folder.
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from jaxtyping import Bool, Float32, Int32, Int64
from pydantic import ConfigDict

Array = np.ndarray
A = TypeVar("A")

STRICT = ConfigDict(extra="forbid")
"""How every method is validated: `@dataclass(frozen=True, config=STRICT)` of `pydantic.dataclasses`."""


@dataclass(frozen=True)
class Machine:
    """What a job may use. It decides how fast an artefact is made, never which, so it is in no address."""

    processes: int = 1  # torchrun processes; fewer than the method's ranks means virtual ranks
    threads: int = 1  # per process
    device: str = "cpu"  # or "cuda"
    snapshot_minutes: float | int = 10.0  # between snapshots, from which a training goes on after a crash
    silent_s: float | int = 600.0  # a process of a training that gives no sign of life for so long is ended
    nodes: int = 1  # machines, each with an even share of the processes
    meeting: str = ""  # the shared folder where several machines meet
    sharded: bool = False  # weights, gradients and optimizer state split over the processes
    offload: bool = False  # with `sharded`: what is split waits in host memory
    compile: bool = False  # each layer by torch.compile
    activation_checkpointing: bool = False  # recompute each layer in the backward pass: less memory, slower
    unsafe: bool = False  # run generated programs also where the sandbox lacks a part of its isolation


@dataclass(frozen=True)
class Workspace:
    """Where a job works: a folder that outlives a crash, the machine, and what jobs keep for each other."""

    folder: Path
    machine: Machine = Machine()
    kept: Path | None = None  # only ever added to, and never needed: what is missing in it is made again


@dataclass(frozen=True)
class Corpus:
    """Instruction rows: what the user asks, what the model is to answer."""

    prompts: list[str]
    answers: list[str]

    def __len__(self) -> int:
        return len(self.prompts)


@dataclass(frozen=True)
class Model:
    """A base model in the Hugging Face layout: config, safetensors, and a tokenizer with a chat template."""

    weights: Path
    parameters: int


@dataclass(frozen=True)
class Tokens:
    """The corpus as the model reads it: prompt and answer of row i lie in ids[starts[i]:starts[i + 1]]."""

    ids: Int32[Array, " t"]
    starts: Int64[Array, " bounds"]  # n + 1 of them
    answers: Int64[Array, " n"]  # position in ids of the first response token of each row
    rows: Int64[Array, " n"]  # the corpus row of each; ascending
    left_out: list[str]  # one line per corpus row that cannot be trained on, and why

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lengths(self) -> Int64[Array, " n"]:
        """Tokens per row, prompt and response."""
        return np.diff(self.starts)

    @property
    def response_lengths(self) -> Int64[Array, " n"]:
        """Response tokens per row."""
        return self.starts[1:] - self.answers


@dataclass(frozen=True)
class Features:
    """One unit vector per row; where `norms` is 0 the vector is 0 and the row is never clustered."""

    values: Float32[Array, "n d"]
    norms: Float32[Array, " n"]
    seconds: float  # forward passes only: no model load


@dataclass(frozen=True)
class Clusters:
    """The cluster of each row, -1 where the row has no feature."""

    labels: Int64[Array, " n"]
    centers: Float32[Array, "k d"]
    distances: Float32[Array, " n"]  # squared Euclidean, to the own center; 0 where the label is -1
    overflow: Bool[Array, " n"]  # pushed out of the nearest cluster by the size cap
    seconds: float

    @property
    def sizes(self) -> Int64[Array, " k"]:
        """Rows per cluster, counted before any selection."""
        return np.bincount(self.labels[self.labels >= 0], minlength=len(self.centers))


@dataclass(frozen=True)
class Selection:
    """The rows to train on: positions among the n usable rows, ascending; repeated only by an oversampler."""

    rows: Int64[Array, " m"]
    uses_features: bool  # whether the choice rests on features, so that their cost is the method's


@dataclass(frozen=True)
class Allocation:
    """The plan's source: which rank trains on which row, and how much the row counts."""

    rows: Int64[Array, " m"]  # the selection's, in its order
    rank: Int64[Array, " m"]
    weight: Float32[Array, " m"]  # averages to 1
    ranks: int
    mixed: bool = False  # deal every global batch to the ranks anew: same batches, shuffled ranks
    layout: str = "shuffled"  # how the plan cuts a rank's rows into steps: a name of training.layouts
    cluster: Int64[Array, " m"] | None = None
    lengths: Int64[Array, " m"] | None = (
        None  # tokens, or what counts as such; for the layouts that level them
    )


@dataclass(frozen=True)
class Checkpoint:
    """A tuned model in the Hugging Face layout, and what it cost."""

    weights: Path
    steps: int
    tokens: int  # real tokens trained on, over all epochs
    train_seconds: float  # optimizer steps only: no model load, no saving, no scoring
    modelled_seconds: float  # what as many real processes as ranks would take; train_seconds if there were
    rank_seconds: list[float]  # forward and backward, per rank
    processes: int


@dataclass(frozen=True)
class Benchmarks:
    """The items of each benchmark, `<name>.jsonl` in the columns of the published data set."""

    folder: Path
    items: dict[str, int]
    sha256: dict[str, str]


@dataclass(frozen=True)
class Contamination:
    """Pairs of a corpus row and a benchmark item that share a run of words; by row, benchmark and item."""

    row: Int64[Array, " p"]
    benchmark: Int64[Array, " p"]  # place in `names`
    item: Int64[Array, " p"]  # place in the benchmark's file, from 0
    run: Int64[Array, " p"]  # words in the longest run that both have
    start: Int64[Array, " p"]  # word of the row where it begins; the prompt's end counts as a word
    names: list[str]
    shortest: int  # words of the shortest run that is listed
    seconds: float


@dataclass(frozen=True)
class Scores:
    """One score per benchmark, with all that is needed to doubt it."""

    values: dict[str, float]  # in [0, 1]
    stderr: dict[str, float]
    items: dict[str, int]
    counts: dict[str, dict[str, int]]  # passed, wrong, syntax_error, timeout, unparsed
    protocols: dict[str, str]
    versions: dict[str, str]
    seconds: float
    doubts: dict[str, list[str]] = dataclasses.field(default_factory=dict[str, list[str]])  # why, and samples
    noise: dict[str, dict[str, float | int]] = dataclasses.field(
        default_factory=dict[str, dict[str, float | int]]
    )


@dataclass(frozen=True)
class Soundness:
    """The items of code benchmarks that cannot tell right from wrong, by their number from 0."""

    failing: dict[str, dict[str, str]]  # benchmark -> item -> what became of its own reference solution
    vacuous: dict[str, list[int]]  # benchmark -> items whose tests a function passes that does nothing
    unknown: dict[str, int]  # benchmark -> items that come without a reference solution
    seconds: float


def save(artifact: object, folder: Path) -> None:
    """Write arrays to `<field>.npy`, the rest to `values.json`; a path is kept relative to the folder."""
    values: dict[str, Any] = {}
    for name, value in vars(artifact).items():
        if isinstance(value, np.ndarray):
            np.save(folder / f"{name}.npy", cast("np.ndarray[Any, Any]", value), allow_pickle=False)
        else:
            values[name] = str(value.relative_to(folder)) if isinstance(value, Path) else value
    (folder / "values.json").write_text(json.dumps(values, indent=2))


def load(kind: type[A], folder: Path) -> A:
    """Read what `save` wrote. Arrays are memory-mapped, read-only.

    A field that came later than the artefact has its default.
    """
    values: dict[str, Any] = json.loads((folder / "values.json").read_text())
    for field in dataclasses.fields(cast("Any", kind)):
        array = folder / f"{field.name}.npy"
        if field.type is Path:
            values[field.name] = folder / values[field.name]
        elif field.name not in values and (array.exists() or _is_required(field)):
            values[field.name] = np.load(array, mmap_mode="r", allow_pickle=False)
    return kind(**values)


def _is_required(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
