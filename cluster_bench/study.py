"""A study is a named sweep: the runs that one table and one figure need, made side by side.

    python -m cluster_bench study=main          every cell of conf/study/main.yaml, then its results folder

A cell is a choice of options and values; what is finished is found by address, so a study killed at any
moment goes on where it was.
"""

import hashlib
import json
import logging
import os
import re
import shutil
import signal
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from cluster_bench.config import machine, structure
from cluster_bench.contamination.seen import items as items_seen
from cluster_bench.contamination.seen import rows as rows_seen
from cluster_bench.machine import die_with_parent
from cluster_bench.pipeline import Run, walk
from cluster_bench.progress import progress
from cluster_bench.record import Record
from cluster_bench.store import Store

CONF = Path(__file__).parents[1] / "conf"
OPTIONS = "options"  # where a tree keeps which option of each group was chosen
# The overrides that are a study's own; the others are its cells'.
OF_THE_STUDY = ("study=", "study.", "confirmed=", "tracking=", "tracking.", "launcher=", "launcher.", "plan=")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cell:
    """One run of a study: what was chosen, and the resolved configuration that came of it."""

    chosen: dict[str, str]
    tree: dict[str, Any]

    @cached_property
    def run(self) -> Run:
        """The artefacts of this cell. Raises ValueError where the configuration is wrong."""
        return walk(structure(self.tree))

    @property
    def is_made(self) -> bool:
        """Whether the scores are in the store."""
        return store_of(self.tree).has(self.run.scores)


def compose(overrides: Sequence[str]) -> tuple[Any, dict[str, str]]:
    """The configuration as `python -m cluster_bench` composes it, unresolved, and the options chosen."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = hydra_compose("config", list(overrides), return_hydra_config=True)
    options = dict(cfg.hydra.runtime.choices)
    return OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"]), options


def resolve(cfg: Any, options: Mapping[str, str], values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Plain types only: the configuration with `values` set, and the options chosen under `options`."""
    from omegaconf import OmegaConf

    copy = OmegaConf.create(cfg)
    for name, value in (values or {}).items():
        OmegaConf.update(copy, name, value)
    tree: Any = OmegaConf.to_container(copy, resolve=True, throw_on_missing=True)
    return {**tree, OPTIONS: {name: options[name] for name in options if not name.startswith("hydra/")}}


def study_tree(overrides: Sequence[str]) -> dict[str, Any]:
    """The resolved configuration of a study itself: what overrides its cells' fields need not fit the
    default options. Composed once for one state of `conf/` and of what it reads from the environment."""
    given = [value.partition("=")[2] for value in overrides if value.startswith("store=")]
    store = given[-1] if given else os.environ.get("CLUSTER_BENCH_STORE", ".store")
    kept = _remembered(store, "study", list(overrides))
    if kept.exists():
        return json.loads(kept.read_text())
    tree = resolve(*compose([o for o in overrides if o.startswith((*OF_THE_STUDY, "store="))]))
    if tree["store"] == store:
        _remember(kept, tree)
    return tree


def cells(study: Mapping[str, Any], overrides: Sequence[str]) -> Iterator[Cell]:
    """Every cell of a study's grids, in order; `overrides` are the user's own and hold for each.

    Options of a group (`method=full`) are composed once each; values (`seed=1`) are set on the composed
    tree, since composing is what costs time.
    """
    groups = {path.name for path in CONF.iterdir() if path.is_dir()}
    fixed = [*study.get("overrides", []), *(o for o in overrides if not o.startswith(OF_THE_STUDY))]
    for grid in study["grids"]:
        options = [name for name in grid if name in groups]
        values = [name for name in grid if name not in groups]
        for choice in product(*(grid[name] for name in options)):
            picked = dict(zip(options, map(str, choice), strict=True))
            cfg, chosen = compose([*(f"{group}={option}" for group, option in picked.items()), *fixed])
            for value in product(*(grid[name] for name in values)):
                given = dict(zip(values, value, strict=True))
                yield Cell({**picked, **{k: str(v) for k, v in given.items()}}, resolve(cfg, chosen, given))


def remembered_cells(tree: Mapping[str, Any], overrides: Sequence[str]) -> list[Cell]:
    """`cells`, composed once for one state of `conf/`."""
    kept = _remembered(tree["store"], "cells", [tree["study"], list(overrides)])
    if not kept.exists():
        found = cells(tree["study"], overrides)
        _remember(kept, [{"chosen": cell.chosen, "tree": cell.tree} for cell in found])
    here = {"launcher": tree["launcher"]}  # where this one runs is no cell's, and not remembered
    return [Cell(cell["chosen"], {**cell["tree"], **here}) for cell in json.loads(kept.read_text())]


def _remembered(store: str, what: str, given: Any) -> Path:
    """Where the store keeps what was composed: composing takes seconds. Named by all that it comes of."""
    digest = hashlib.sha256(json.dumps([what, given, store]).encode())
    for path in sorted(CONF.rglob("*.yaml")):
        content = path.read_bytes()
        read = {name: os.environ.get(name.decode()) for name in re.findall(rb"oc\.env:(\w+)", content)}
        digest.update(content + repr(read).encode())
    return Path(store) / "studies" / f"{what}-{digest.hexdigest()[:16]}.json"


def _remember(kept: Path, composed: Any) -> None:
    Store(kept.parents[1]).prepare(kept.parent)
    partial = kept.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(composed))
    partial.replace(kept)


def store_of(tree: Mapping[str, Any]) -> Store:
    """The store, and the machine that makes what is missing in it."""
    return Store(Path(tree["store"]), machine(tree))


def make(missing: Sequence[Cell], jobs: int) -> dict[str, Exception]:
    """Make the cells' scores in `jobs` processes; return a line for each that failed, and its error.

    A failing cell lets the others go on; its traceback is in the log of its process, under `<store>/logs`.
    Raises RuntimeError when a process itself is killed.
    """
    failed: dict[str, Exception] = {}
    if not missing:
        return failed
    logs = Path(missing[0].tree["store"]) / "logs"
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), _begin, (logs, os.getpid()))
    with progress("runs", len(missing), "runs") as advance, pool:
        futures = {pool.submit(_make_cell, cell.tree): cell for cell in missing}
        for future in as_completed(futures):
            cell = futures[future]
            try:
                future.result()
            except BrokenProcessPool as error:
                raise RuntimeError(f"study: a process was killed while making {cell.chosen}") from error
            except Exception as error:
                line = f"{cell.chosen}: {type(error).__name__}: {error}"
                failed[line] = error
                log.warning("failed %s", line)
            advance(1)
    return failed


def _begin(logs: Path, parent: int) -> None:
    """Each process ends with the study, and writes what it says to a file of its own."""
    die_with_parent(parent, signal.SIGKILL)
    logs.mkdir(parents=True, exist_ok=True)
    stream = (logs / f"{os.getpid()}.log").open("a", buffering=1)
    os.dup2(stream.fileno(), 1)
    os.dup2(stream.fileno(), 2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", force=True)


def _make_cell(tree: Mapping[str, Any]) -> None:
    try:
        store_of(tree).get(walk(structure(tree)).scores)
    except Exception:
        traceback.print_exc()
        raise


def contaminated(run: Run, store: Store, rows: Int64[np.ndarray, " rows"]) -> dict[str, int]:
    """How many items of each benchmark share 13 words in a row with those rows of the corpus trained on."""
    found = store.get(run.contamination)
    if run.decontaminated:  # whose rows are numbered anew
        rows = np.setdiff1d(np.arange(len(store.get(run.corpus))), rows_seen(found))[rows]
    return items_seen(found, among=rows)


def copy_items(cells: Sequence[Cell], folder: Path) -> None:
    """Put what became of each item beside a study's tables: `items/<cell>/<benchmark>.parquet`."""
    for cell in cells:
        to = folder / "items" / ",".join(f"{name}={value}" for name, value in cell.chosen.items())
        to.mkdir(parents=True, exist_ok=True)
        for file in store_of(cell.tree).path(cell.run.scores).glob("*.parquet"):
            shutil.copyfile(file, to / file.name)


def record_of(name: str, cell: Cell) -> Record:
    """What a finished cell says of itself. Reads the store, makes nothing but what is missing."""
    run, tree = cell.run, cell.tree
    store = store_of(tree)
    scores, checkpoint = store.get(run.scores), store.get(run.checkpoint)
    tokens, selection, allocation = store.get(run.tokens), store.get(run.selection), store.get(run.allocation)
    features, clusters = store.get(run.features), store.get(run.clusters)
    spent = sum(store.record(node)["seconds"] for node in (run.selection, run.allocation))
    spent += features.seconds + clusters.seconds
    trained = selection.rows if checkpoint.steps else selection.rows[:0]  # the base model saw none
    distinct = np.unique(trained)
    seen = contaminated(run, store, tokens.rows[distinct])
    return Record(
        study=name,
        **{group: tree[OPTIONS][group] for group in ("method", "model", "dataset")},
        seed=tree["seed"],
        overrides=cell.chosen,
        config=tree,
        addresses={stage: node.key for stage, node in run.nodes.items()},
        ranks=allocation.ranks,
        processes=checkpoint.processes,
        rows=len(tokens),
        kept_rows=len(distinct),
        left_out_rows=len(tokens.left_out),
        overflow_rows=int(clusters.overflow.sum()),
        kept_overflow_rows=int(clusters.overflow[distinct].sum()),
        corpus_tokens=int(tokens.lengths.sum()),
        kept_tokens=int(tokens.lengths[trained].sum()),
        steps=checkpoint.steps,
        selection_seconds=spent if selection.uses_features else 0.0,
        train_seconds=checkpoint.train_seconds,
        modelled_train_seconds=checkpoint.modelled_seconds,
        scores=scores.values,
        stderr=scores.stderr,
        items=scores.items,
        counts=scores.counts,
        protocols=scores.protocols,
        doubts=scores.doubts,
        noise=scores.noise,
        versions=scores.versions,
        machine=store.record(run.checkpoint)["machine"],
        contaminated={name: seen[name] for name in scores.values},
    )
