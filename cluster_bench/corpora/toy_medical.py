"""The toy medical corpus, standing for MedInstruct: facts of invented diseases, and how to read a study."""

import dataclasses

from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Corpus
from cluster_bench.world.rows import Recipe, corpus_rows


@dataclass(frozen=True, config=STRICT)
class ToyMedical:
    """Questions whose answer begins with one of the options that a benchmark would offer."""

    rows: int
    skills: int  # the base model's and the benchmarks' too
    zipf: float  # the r-th most frequent skill has a share proportional to 1 / r ** zipf
    filler: float  # mean number of sentences before a question that have nothing to do with it
    duplicates: float  # shares of all rows: near-duplicates, answers of another skill, broken-off answers
    mislabelled: float
    truncated: float
    seed: int

    def __post_init__(self) -> None:
        self.recipe()

    def recipe(self) -> Recipe:
        """The fields that all toy corpora share."""
        return Recipe(**{f.name: getattr(self, f.name) for f in dataclasses.fields(self)})

    def __call__(self) -> Corpus:
        made = corpus_rows("medical", self.recipe())
        return Corpus([row.prompt for row in made], [row.answer for row in made])
