"""N-gram overlap of corpus rows with benchmark items, after GPT-3 (Brown et al. 2020, appendix C)."""

import logging
import time

import numpy as np
from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Benchmarks, Contamination, Corpus
from cluster_bench.contamination.overlap import overlaps
from cluster_bench.contamination.words import item_parts

log = logging.getLogger(__name__)


@dataclass(frozen=True, config=STRICT)
class Ngrams:
    """All pairs that share `shortest` words in a row, each with its longest run: 8 and 13 words at once.

    `words.py` says what a word is and which texts of an item are compared.
    """

    shortest: int  # words; below about 8 every text has runs in common with every other

    def __post_init__(self) -> None:
        if self.shortest < 2:
            raise ValueError(f"shortest must be at least 2 words, got {self.shortest}")

    def __call__(self, corpus: Corpus, benchmarks: Benchmarks) -> Contamination:
        start = time.perf_counter()
        names = list(benchmarks.items)
        parts = [item_parts(name, benchmarks.folder / f"{name}.jsonl") for name in names]
        firsts = np.cumsum([0, *map(len, parts)])  # of each benchmark among all items
        rows = list(zip(corpus.prompts, corpus.answers, strict=True))
        found = overlaps(rows, [item for part in parts for item in part], self.shortest)
        benchmark = np.searchsorted(firsts, found.item, "right") - 1
        seconds = time.perf_counter() - start
        speed = (len(rows), firsts[-1], len(rows) / seconds)
        log.info("contamination: %d rows against %d items, %.0f rows/s", *speed)
        return Contamination(
            row=found.row,
            benchmark=benchmark,
            item=found.item - firsts[benchmark],
            run=found.run,
            start=found.start,
            names=names,
            shortest=self.shortest,
            seconds=seconds,
        )
