"""A corpus without the rows that have seen a benchmark item: `dataset.decontaminate=true`."""

from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Contamination, Corpus
from cluster_bench.contamination.seen import WORDS, rows


@dataclass(frozen=True, config=STRICT)
class Decontaminate:
    """Drops every row that shares `words` words in a row with an item; ValueError if none would stay."""

    words: int = WORDS

    def __call__(self, corpus: Corpus, contamination: Contamination) -> Corpus:
        dropped = set(rows(contamination, self.words).tolist())
        kept = [row for row in range(len(corpus)) if row not in dropped]
        if not kept:
            raise ValueError(
                f"dataset.decontaminate: all {len(corpus)} rows share {self.words} words with an item"
            )
        return Corpus([corpus.prompts[row] for row in kept], [corpus.answers[row] for row in kept])
