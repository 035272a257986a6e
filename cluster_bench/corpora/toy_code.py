"""The toy code corpora: `oss` stands for OSS-Instruct, `evol` for Evol-Instruct.

They teach the same programs in other proportions, wordings and lengths.
"""

import dataclasses
from typing import Literal

from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Corpus
from cluster_bench.world.rows import Recipe, corpus_rows


@dataclass(frozen=True, config=STRICT)
class ToyCode:
    """Requests for small named programs; the answer is the whole function as plain code."""

    style: Literal["oss", "evol"]
    rows: int
    skills: int  # the base model's and the benchmarks' too
    zipf: float  # the r-th most frequent skill has a share proportional to 1 / r ** zipf
    filler: float  # mean number of sentences before a request that have nothing to do with it
    duplicates: float  # shares of all rows: near-duplicates, answers of another skill, broken-off answers
    mislabelled: float
    truncated: float
    seed: int

    def __post_init__(self) -> None:
        self.recipe()

    def recipe(self) -> Recipe:
        """The fields that all toy corpora share."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        fields.pop("style")
        return Recipe(**fields)

    def __call__(self) -> Corpus:
        made = corpus_rows(self.style, self.recipe())
        return Corpus([row.prompt for row in made], [row.answer for row in made])
