"""A content-addressed store: a node's address is a hash of how it would be made.

An address needs no data, so a whole run can be planned before any of it is computed.
A folder at an address is complete: it gets there by one rename, or not at all.

    store = Store(Path(".store"), Machine(processes=2))
    scores = store.get(run.scores)      # makes what is missing, once, and loads the rest
"""

import dataclasses
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar, cast, overload

from filelock import FileLock

from cluster_bench.artifacts import Machine, Workspace, load, save
from cluster_bench.machine import facts

FORMAT = 1  # raise it when `save` writes another layout: every address changes, nothing is misread

A = TypeVar("A")
X = TypeVar("X")
Y = TypeVar("Y")
Z = TypeVar("Z")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Node(Generic[A]):
    """One artefact that a run needs: what makes it, and from which others."""

    stage: str  # "<name>.v<n>"; raise n when the code would make a different artefact
    kind: type[A]
    make: Callable[..., A]
    parents: "tuple[Node[Any], ...]"
    is_job: bool = False  # a job gets a workspace whose folder outlives a crash

    @cached_property
    def recipe(self) -> dict[str, Any]:
        """All that decides what the artefact is: layout, stage version, every field, the parents."""
        fields = dataclasses.asdict(cast("Any", self.make))
        spec = {"kind": type(self.make).__name__, **fields}
        return {
            "format": FORMAT,
            "stage": self.stage,
            "spec": spec,
            "parents": [parent.key for parent in self.parents],
        }

    @cached_property
    def key(self) -> str:
        """The address: the first 16 hexadecimal digits of the recipe's SHA-256."""
        text = json.dumps(self.recipe, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


# One overload per number of parents: a walk that hands a stage the wrong artefact does not type-check.
@overload
def node(stage: str, kind: type[A], make: Callable[[], A], /) -> Node[A]: ...
@overload
def node(stage: str, kind: type[A], make: Callable[[X], A], x: Node[X], /) -> Node[A]: ...
@overload
def node(stage: str, kind: type[A], make: Callable[[X, Y], A], x: Node[X], y: Node[Y], /) -> Node[A]: ...
@overload
def node(
    stage: str, kind: type[A], make: Callable[[X, Y, Z], A], x: Node[X], y: Node[Y], z: Node[Z], /
) -> Node[A]: ...
def node(stage: str, kind: type[Any], make: Callable[..., Any], *parents: Node[Any]) -> Node[Any]:
    """A pure call of the parents' artefacts."""
    return Node(stage, kind, make, parents)


@overload
def job(stage: str, kind: type[A], make: Callable[[Workspace], A], /) -> Node[A]: ...
@overload
def job(stage: str, kind: type[A], make: Callable[[X, Workspace], A], x: Node[X], /) -> Node[A]: ...
@overload
def job(
    stage: str, kind: type[A], make: Callable[[X, Y, Workspace], A], x: Node[X], y: Node[Y], /
) -> Node[A]: ...
@overload
def job(
    stage: str, kind: type[A], make: Callable[[X, Y, Z, Workspace], A], x: Node[X], y: Node[Y], z: Node[Z], /
) -> Node[A]: ...
def job(stage: str, kind: type[Any], make: Callable[..., Any], *parents: Node[Any]) -> Node[Any]:
    """A call that also gets a workspace: a folder to leave files in, and the machine."""
    return Node(stage, kind, make, parents, is_job=True)


@dataclass(frozen=True)
class Store:
    """Artefacts on disk under `root`, made on `machine`."""

    root: Path
    machine: Machine = field(default_factory=Machine)

    def path(self, node: Node[Any]) -> Path:
        """Where the artefact is, or would be."""
        return self.root / node.stage / node.key

    def has(self, node: Node[Any]) -> bool:
        """Whether the artefact is there, complete."""
        return self.path(node).is_dir()

    def get(self, node: Node[A]) -> A:
        """Return the artefact, making it and what it needs only where they are missing.

        Raises ValueError if the root cannot be written, and whatever the method raises; then nothing
        lies at the address.
        """
        if not self.has(node):
            lock = self.path(node).with_suffix(".lock")
            self.prepare(lock.parent)
            with FileLock(lock):
                if not self.has(node):
                    self._make(node)
        return load(node.kind, self.path(node))

    def record(self, node: Node[Any]) -> dict[str, Any]:
        """The recipe, the seconds and the machine of an artefact that is there."""
        record: dict[str, Any] = json.loads((self.path(node) / "record.json").read_text())
        return record

    def prepare(self, folder: Path) -> None:
        """Make a folder of the store. Raises ValueError that names the store if it cannot be written."""
        why = "permission denied"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = str(error.strerror)
        if not os.access(folder, os.W_OK):
            raise ValueError(
                f"store: {self.root} cannot be written ({why}); "
                "set store=FOLDER or CLUSTER_BENCH_STORE to a folder that can"
            )

    def _make(self, node: Node[Any]) -> None:
        inputs = [self.get(parent) for parent in node.parents]
        partial = self.path(node).with_suffix(".partial")
        if not node.is_job:
            shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True, exist_ok=True)
        extra = [Workspace(partial, self.machine, self.root / "answers")] if node.is_job else []
        log.info("making %s %s", node.stage, node.key)
        wall, cpu = time.perf_counter(), time.process_time()
        artifact = node.make(*inputs, *extra)  # an error leaves nothing at the address
        seconds = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
        save(artifact, partial)
        record = {**node.recipe, **seconds, "machine": facts(self.machine)}
        (partial / "record.json").write_text(json.dumps(record, indent=2))
        partial.rename(self.path(node))
        log.info("made %s %s in %.1f s", node.stage, node.key, seconds["seconds"])
