"""A study is a named sweep: the runs that one table and one figure need, made side by side.

    python -m cluster_bench study=main          every cell of conf/study/main.yaml, then its results folder

A cell is a choice of options and values; what is finished is found by address, so a study killed at any
moment goes on where it was.
"""

import logging
import os
import shutil
import signal
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from cluster_bench.cells import OPTIONS, Cell, store_of
from cluster_bench.config import structure
from cluster_bench.contamination.seen import items as items_seen
from cluster_bench.contamination.seen import rows as rows_seen
from cluster_bench.machine import die_with_parent
from cluster_bench.pipeline import Run, walk
from cluster_bench.progress import progress
from cluster_bench.record import Record
from cluster_bench.store import Store

log = logging.getLogger(__name__)


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
        make_run(walk(structure(tree)), store_of(tree))
    except Exception:
        traceback.print_exc()
        raise


def make_run(run: Run, store: Store) -> None:
    """Make what is missing of a run; what is wrong with its benchmarks is said before anything is trained."""
    store.get(run.soundness)
    store.get(run.scores)


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
    soundness = store.get(run.soundness)
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
        failing={name: [*map(int, of)] for name, of in soundness.failing.items() if name in scores.values},
        vacuous={name: of for name, of in soundness.vacuous.items() if name in scores.values},
    )
