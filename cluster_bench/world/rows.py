"""Corpora of the toy world: long-tailed skills, and the flaws of real sets in stated shares."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Float64

from cluster_bench.artifacts import Array
from cluster_bench.world import WORLD_SEED
from cluster_bench.world.medicine import knowledge
from cluster_bench.world.programs import programs
from cluster_bench.world.stories import COURTESIES, code_prompt, fillers, medical_prompt, pick, story

Flaw = Literal["", "duplicate", "mislabelled", "truncated"]
Domain = Literal["oss", "evol", "medical"]


@dataclass(frozen=True)
class Row:
    """A training row, and what only the world knows about it."""

    prompt: str
    answer: str
    skill: int
    flaw: Flaw


@dataclass(frozen=True)
class Recipe:
    """What a corpus is made of. Shares are of all rows, in [0, 1]."""

    rows: int
    skills: int
    zipf: float  # the r-th most frequent skill has a share proportional to 1 / r ** zipf
    filler: float  # mean number of sentences that matter to nobody
    duplicates: float
    mislabelled: float
    truncated: float
    seed: int

    def __post_init__(self) -> None:
        flaws = self.duplicates + self.mislabelled + self.truncated
        if min(self.duplicates, self.mislabelled, self.truncated) < 0 or flaws > 0.9:
            raise ValueError(
                f"shares of duplicates {self.duplicates}, mislabelled {self.mislabelled} and truncated "
                f"{self.truncated} rows must not be negative, nor more than 0.9 together"
            )
        if self.rows < 20 or self.zipf < 0 or self.filler < 0:
            raise ValueError(
                f"rows {self.rows} must be at least 20; zipf {self.zipf} and filler {self.filler} at least 0"
            )


LONG: dict[Domain, float] = {"oss": 0.004, "evol": 0.006, "medical": 0.004}
"""Share of rows with a very long story, per corpus."""


def shares(skills: int, zipf: float, rng: np.random.Generator) -> Float64[Array, " skills"]:
    """How often each skill occurs: Zipf over a random ranking, summing to 1."""
    weight = (1.0 + rng.permutation(skills)) ** -zipf
    return weight / weight.sum()


def draft(
    domain: Domain, recipe: Recipe, skill: int, rng: np.random.Generator
) -> tuple[str, Callable[[int], str]]:
    """A prompt that asks for a skill, and how it would be answered with this or another skill."""
    s = story(rng, "train")
    before = fillers(rng, s, recipe.filler, LONG[domain])
    if domain == "medical":
        known = knowledge(recipe.skills)
        return before + medical_prompt(rng, known[skill], s), lambda which: known[which].answer
    code = programs(recipe.skills)
    prompt = before + code_prompt(rng, code[skill], s, domain)
    return prompt, lambda which: code[which].source(s.function, s.argument)


def cut(answer: str, rng: np.random.Generator) -> str:
    """The answer, broken off after 30 to 80% of its characters (at least one)."""
    return answer[: max(1, int(len(answer) * rng.uniform(0.3, 0.8)))]


def corpus_rows(domain: Domain, recipe: Recipe) -> list[Row]:
    """All rows of a corpus, in a random order; a flaw is never put on top of another."""
    rng = np.random.default_rng([WORLD_SEED, list(LONG).index(domain), recipe.seed])
    doubled, wrong, short = (
        round(recipe.rows * share) for share in (recipe.duplicates, recipe.mislabelled, recipe.truncated)
    )
    fresh = recipe.rows - doubled
    skills = rng.choice(recipe.skills, size=fresh, p=shares(recipe.skills, recipe.zipf, rng))
    made: list[Row] = []
    for place, skill in enumerate(skills.tolist()):
        prompt, reply = draft(domain, recipe, skill, rng)
        if place < wrong:
            others = [j for j in range(recipe.skills) if reply(j) != reply(skill)]
            made.append(Row(prompt, reply(others[int(rng.integers(len(others)))]), skill, "mislabelled"))
        elif place < wrong + short:
            made.append(Row(prompt, cut(reply(skill), rng), skill, "truncated"))
        else:
            made.append(Row(prompt, reply(skill), skill, ""))
    for source in rng.integers(wrong + short, fresh, size=doubled).tolist():
        twin = made[source]
        made.append(replace(twin, prompt=f"{pick(rng, COURTESIES)} {twin.prompt}", flaw="duplicate"))
    return [made[i] for i in rng.permutation(len(made))]
