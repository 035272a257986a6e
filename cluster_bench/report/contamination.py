"""Which rows of a corpus have seen which benchmark items: contamination.csv, and the counts.

    python -m cluster_bench.report.contamination dataset=jsonl dataset.path=rows.jsonl \\
        benchmarks=local benchmarks.folder=FOLDER > contamination.csv

Takes the options of `python -m cluster_bench`; the pairs go to stdout, the counts to stderr.
"""

import csv
import io
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cluster_bench.artifacts import Benchmarks, Contamination, Corpus
from cluster_bench.cells import Cell, compose, resolve, store_of
from cluster_bench.config import structure
from cluster_bench.contamination.seen import WORDS, items, rows, shared
from cluster_bench.contamination.words import words
from cluster_bench.pipeline import walk

FILE = "contamination.csv"
COLUMNS = ("dataset", "benchmark", "item", "row", "words", "text")


def pairs(dataset: str, corpus: Corpus, found: Contamination, least: int) -> list[tuple[str | int, ...]]:
    """A line of contamination.csv for each pair that shares at least `least` words, and these words.

    Items and rows are numbered from 0: line of the benchmark's file, row of the corpus.
    """
    lines: list[tuple[str | int, ...]] = []
    for pair in np.flatnonzero(shared(found, least)).tolist():
        row, run, start = (int(values[pair]) for values in (found.row, found.run, found.start))
        said = [*words(corpus.prompts[row]), "", *words(corpus.answers[row])]
        name = found.names[found.benchmark[pair]]
        lines.append((dataset, name, int(found.item[pair]), row, run, " ".join(said[start : start + run])))
    return lines


def write(cells: Sequence[Cell], folder: Path) -> None:
    """Write contamination.csv: the pairs that share 13 words, once for each corpus of finished cells."""
    lines: list[tuple[str | int, ...]] = []
    for cell in {cell.run.contamination.key: cell for cell in cells}.values():
        store = store_of(cell.tree)
        found, corpus = store.get(cell.run.contamination), store.get(cell.run.corpus)
        lines += pairs(cell.tree["options"]["dataset"], corpus, found, WORDS)
    partial = folder / f".{FILE}.{os.getpid()}"
    partial.write_text(text(lines))
    partial.replace(folder / FILE)


def text(lines: Sequence[tuple[str | int, ...]]) -> str:
    """The lines as CSV."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([COLUMNS, *lines])
    return out.getvalue()


def counts(corpus: Corpus, benchmarks: Benchmarks, found: Contamination) -> str:
    """How many items of each benchmark share words with how many rows, for the shortest runs and for 13."""
    said = [f"{len(corpus)} rows, {sum(benchmarks.items.values())} items, {found.seconds:.1f} s"]
    for least in sorted({found.shortest, max(WORDS, found.shortest)}):
        seen = items(found, least)
        part = ", ".join(f"{name} {seen[name]} of {benchmarks.items[name]}" for name in found.names)
        said.append(f"at least {least} words: {len(rows(found, least))} rows; items of {part}")
    return "\n".join(said)


def command() -> None:
    """Print the pairs and the counts; exit code 2 and one line where the input is wrong."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        tree = resolve(*compose(sys.argv[1:]))
        run, store = walk(structure(tree)), store_of(tree)
        corpus, benchmarks = store.get(run.corpus), store.get(run.benchmarks)
        found = store.get(run.contamination)
    except (ValueError, HydraException, OmegaConfBaseException) as error:
        print(f"error: {str(error).strip().splitlines()[0]}", file=sys.stderr)
        sys.exit(2)
    print(text(pairs(tree["options"]["dataset"], corpus, found, found.shortest)), end="")
    print(counts(corpus, benchmarks, found), file=sys.stderr)


if __name__ == "__main__":
    command()
