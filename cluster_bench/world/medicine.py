"""The medical skills: facts (disease, relation -> value) and findings (how a study ends -> verdict).

Every fourth skill is a finding. Every twelfth of either kind is simple: a base model knows it.
"""

import functools
from dataclasses import dataclass

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
    """Every fact of the world, in a fixed mixed order."""
    rng = np.random.default_rng([WORLD_SEED, 2])
    pairs = [(disease, relation) for disease in DISEASES for relation in RELATIONS]
    chosen = [str(rng.choice(values(relation))) for _, relation in pairs]
    order = rng.permutation(len(pairs))
    return tuple(Fact(pairs[j][0], pairs[j][1], chosen[j], i % 12 == 0) for i, j in enumerate(order))


@functools.cache
def knowledge(count: int) -> tuple[Fact | Finding, ...]:
    """The first `count` medical skills; a shorter tuple is always the start of a longer one."""
    if not 4 <= count <= LIMIT:
        raise ValueError(f"skills {count}: the toy world has from 4 to {LIMIT} medical skills")
    studies = [Finding(phrase, verdict, i % 12 == 0) for i, (phrase, verdict) in enumerate(FINDINGS.items())]
    return tuple(studies[i // 4] if i % 4 == 3 else facts()[i - i // 4] for i in range(count))
