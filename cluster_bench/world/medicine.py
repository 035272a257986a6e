"""The medical skills: facts (disease, relation -> value) and findings (how a study ends -> verdict).

Every fourth skill is a finding. Every sixteenth of either kind is simple: a base model knows it.
"""

import functools
from dataclasses import dataclass, replace

import numpy as np

from cluster_bench.world import WORLD_SEED
from cluster_bench.world.lexicon import DISEASES, FINDINGS, RELATIONS, REMARKS

LIMIT = 4 * min(len(FINDINGS), len(DISEASES) * len(RELATIONS) // 3)


@dataclass(frozen=True)
class Fact:
    """A skill: in `disease` the `relation` is `value`."""

    disease: str
    relation: str
    value: str
    simple: bool

    @property
    def answer(self) -> str:
        """The value first, then what one says about such a value."""
        return self.value + REMARKS[self.relation]


@dataclass(frozen=True)
class Finding:
    """A skill: a study in which the pain `phrase` says `answer`: yes, no or maybe."""

    phrase: str
    answer: str
    simple: bool


def values(relation: str) -> list[str]:
    """All values that a relation can have: the options of a question."""
    return RELATIONS[relation][2].split()


@functools.cache
def facts() -> tuple[Fact, ...]:
    """Every fact of the world. Any start of the list has about as many facts of each relation and value.

    So a model that knows no fact, but has a favourite value, is right as often as chance.
    """
    rng = np.random.default_rng([WORLD_SEED, 2])
    made: list[list[Fact]] = []
    for relation in RELATIONS:
        laps = [rng.permutation(values(relation)) for _ in range(-(-len(DISEASES) // len(values(relation))))]
        pairs = zip(rng.permutation(DISEASES), np.concatenate(laps), strict=False)
        made.append([Fact(str(disease), relation, str(value), False) for disease, value in pairs])
    turns = [fact for turn in zip(*made, strict=True) for fact in turn]
    return tuple(replace(fact, simple=i % 16 == 0) for i, fact in enumerate(turns))


@functools.cache
def knowledge(count: int) -> tuple[Fact | Finding, ...]:
    """The first `count` medical skills; a shorter tuple is always the start of a longer one."""
    if not 4 <= count <= LIMIT:
        raise ValueError(f"skills {count}: the toy world has from 4 to {LIMIT} medical skills")
    studies = [Finding(phrase, verdict, i % 16 == 0) for i, (phrase, verdict) in enumerate(FINDINGS.items())]
    return tuple(studies[i // 4] if i % 4 == 3 else facts()[i - i // 4] for i in range(count))
