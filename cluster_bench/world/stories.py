"""How a skill is dressed: fillers, and the wordings of corpora and benchmarks.

Training and benchmarks draw the same words, but a pair (function, argument) or (person, job) belongs to
one of the two only, so no benchmark item can occur in a training row.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cluster_bench.world.lexicon import ARGUMENTS, FUNCTIONS, JOBS, PEOPLE, PLACES, THINGS
from cluster_bench.world.medicine import Fact, Finding
from cluster_bench.world.programs import Program

Side = Literal["train", "test"]
COURTESIES = ["Please help.", "Hello.", "Be quick.", "Good day.", "One more.", "Thank you."]


def pick(rng: np.random.Generator, words: list[str]) -> str:
    return words[int(rng.integers(len(words)))]


def pair(rng: np.random.Generator, one: list[str], two: list[str], side: Side) -> tuple[str, str]:
    """A word of each list: sum of places even for training, odd for benchmarks."""
    i = int(rng.integers(len(one)))
    j = int(rng.integers(len(two) // 2)) * 2 + (i + (side == "test")) % 2
    return one[i], two[j]


@dataclass(frozen=True)
class Story:
    """The surface of one row."""

    function: str
    argument: str
    person: str
    job: str
    thing: str
    place: str
    number: int
    other: int


def story(rng: np.random.Generator, side: Side) -> Story:
    """A random surface of one side."""
    number, other = (int(v) for v in rng.integers(2, 60, size=2))
    return Story(
        *pair(rng, FUNCTIONS, ARGUMENTS, side),
        *pair(rng, PEOPLE, JOBS, side),
        pick(rng, THINGS),
        pick(rng, PLACES),
        number,
        other,
    )


def filler(rng: np.random.Generator, s: Story) -> str:
    """A sentence that matters to nobody."""
    forms = (
        f"{s.person} sells {s.thing} at the {pick(rng, PLACES)}.",
        f"The {s.place} has {int(rng.integers(2, 60))} {pick(rng, THINGS)}.",
        f"{pick(rng, PEOPLE)} is a {s.job}.",
        f"It is day {int(rng.integers(2, 60))} at the {s.place}.",
        f"{pick(rng, PEOPLE)} likes the {pick(rng, THINGS)}.",
    )
    return forms[int(rng.integers(len(forms)))]


def fillers(rng: np.random.Generator, s: Story, mean: float, tail: float) -> str:
    """Mostly none or few; with probability `tail` 16 to 22 of them. Ends with a space unless empty."""
    count = int(rng.integers(16, 23)) if rng.random() < tail else int(rng.geometric(1 / (1 + mean))) - 1
    return "".join(filler(rng, s) + " " for _ in range(count))


def shown_test(program: Program, s: Story, numbers: list[int]) -> str:
    return f"assert {s.function}({numbers}) == {program.outcome(numbers)}"


CODE_FORMS: dict[str, tuple[float, ...]] = {"oss": (0.4, 0.15, 0.25, 0.2), "evol": (0.25, 0.2, 0.3, 0.25)}
"""Share of the four wordings in each code corpus: terse, sentence, signature, test."""


def code_prompt(rng: np.random.Generator, program: Program, s: Story, style: str) -> str:
    """A request for a program, as a training row words it."""
    form = int(rng.choice(4, p=CODE_FORMS[style]))
    call, term = f"{s.function}({s.argument})", program.term
    if form == 0:
        return f"{call}: {term}"
    if form == 1:
        return f"Write {call} to find the {term} of the {s.thing}."
    if form == 2:
        return f'Complete this function:\ndef {call}:\n    """The {term} of {s.argument}."""'
    shown = shown_test(program, s, [int(v) for v in rng.integers(0, 10, size=2)])
    return f"Write a function of {s.argument} to find the {term}.\nTest: {shown}"


def medical_prompt(rng: np.random.Generator, skill: Fact | Finding, s: Story) -> str:
    """A medical question, as a training row words it."""
    if isinstance(skill, Finding):
        if rng.random() < 0.4:
            return f"The pain {skill.phrase}. Does it help? Answer yes, no or maybe."
        return f"{s.number} people at the {s.place} took it. The pain {skill.phrase}. Does it help?"
    form = int(rng.integers(3))
    if form == 0:
        return f"{skill.disease}: {skill.relation}?"
    if form == 1:
        return f"Which {skill.relation} in {skill.disease}?"
    return f"{s.person} is a {s.job} aged {s.number} with {skill.disease}. Which {skill.relation}?"


def medical_question(skill: Fact, s: Story, benchmark: str) -> str:
    """A fact asked as a benchmark asks it."""
    if benchmark == "medmcqa":
        return f"{s.person} the {s.job} asks: which {skill.relation} in {skill.disease}?"
    if benchmark == "medqa":
        return (
            f"{s.person} is a {s.job} aged {s.number} from the {s.place}. It is day {s.other} with "
            f"{skill.disease}. Which {skill.relation}?"
        )
    return f"For {s.person} the {s.job}: {skill.disease} has which {skill.relation}?"


def mbpp_text(program: Program, s: Story) -> str:
    """What an MBPP item says before its tests."""
    return f"Write a function of {s.argument} to find the {program.term} of the {s.thing}."


def exam_code(program: Program, s: Story, benchmark: str, shown: list[int]) -> str:
    """A program asked for as HumanEval or MBPP items are put to a chat model."""
    if benchmark == "humaneval":
        doc = f'''"""Return the {program.term} of the {s.thing}."""'''
        return f"Complete this Python function:\ndef {s.function}({s.argument}):\n    {doc}"
    asked = mbpp_text(program, s)
    return f"{asked}\nIt must pass this test: {shown_test(program, s, shown)}"


def exam_finding(finding: Finding, s: Story) -> str:
    """A finding asked for as PubMedQA items are put to a chat model."""
    return (
        f"{s.person} the {s.job} asked {s.number} people at the {s.place}. The pain {finding.phrase}."
        "\nQuestion: Does it help?\nAnswer yes, no or maybe."
    )
