"""Benchmark items of the toy world, in the column names of the published data sets.

Skills are asked about evenly, unlike in the corpora: what is rare in training counts here.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cluster_bench.world import WORLD_SEED
from cluster_bench.world.lexicon import RELATIONS
from cluster_bench.world.medicine import Fact, Finding, knowledge, values
from cluster_bench.world.programs import Program, programs
from cluster_bench.world.stories import Story, mbpp_text, medical_question, story

Item = dict[str, Any]


def evenly(count: int, skills: int, rng: np.random.Generator) -> list[int]:
    """`count` skills: every skill once in a random order, then again."""
    laps = [rng.permutation(skills) for _ in range(-(-count // skills))]
    return np.concatenate(laps)[:count].tolist()


def asserts(program: Program, function: str, rng: np.random.Generator) -> list[str]:
    """Three tests on short lists of digits, then eight on longer ones with negative and equal numbers."""
    lists = [rng.integers(0, 10, size=size).tolist() for size in (2, 4, 3)]
    lists += [rng.integers(-9, 10, size=size).tolist() for size in (2, 3, 4, 5, 6, 7, 8)]
    lists.append([int(rng.integers(-9, 10))] * 3)
    return [f"assert {function}({numbers}) == {program.outcome(numbers)}" for numbers in lists]


def coded(
    benchmark: str, count: int, skills: int, seed: int, item: Callable[[int, Program, Story, list[str]], Item]
) -> list[Item]:
    """Items about programs; a plus has the programs, stories and first three tests of its benchmark."""
    plus = benchmark.endswith("_plus")
    rng = np.random.default_rng([WORLD_SEED, 20 if benchmark.startswith("humaneval") else 21, seed])
    made: list[Item] = []
    for number, skill in enumerate(evenly(count, skills, rng)):
        program, s = programs(skills)[skill], story(rng, "test")
        name = "candidate" if benchmark.startswith("humaneval") else s.function
        tests = asserts(program, name, rng)
        made.append(item(number, program, s, tests if plus else tests[:3]))
    return made


def humaneval(number: int, program: Program, s: Story, tests: list[str]) -> Item:
    """A function to complete from its first line and docstring; of HumanEval+ too."""
    first, body = program.source(s.function, s.argument).split("\n", 1)
    return {
        "task_id": f"Toy/{number}",
        "prompt": f'{first}\n    """Return the {program.term} of the {s.thing}."""\n',
        "entry_point": s.function,
        "canonical_solution": body + "\n",
        "test": "def check(candidate):\n" + "".join(f"    {test}\n" for test in tests),
    }


def mbpp(number: int, program: Program, s: Story, tests: list[str]) -> Item:
    """A function to write from a sentence."""
    return {
        "task_id": number,
        "text": mbpp_text(program, s),
        "code": program.source(s.function, s.argument),
        "test_list": tests,
        "test_setup_code": "",
        "challenge_test_list": [],
    }


def mbpp_plus(number: int, program: Program, s: Story, tests: list[str]) -> Item:
    """The same in EvalPlus's columns: `test_list` shows three of the tests, `test` runs all."""
    basic = mbpp(number, program, s, tests)
    return {
        "task_id": number,
        "prompt": basic["text"],
        "code": basic["code"],
        "test_imports": [],
        "test_list": tests[:3],
        "test": "\n".join(tests) + "\n",
    }


def choices(fact: Fact, rng: np.random.Generator) -> tuple[list[str], int]:
    """Four options in a random order, and the place of the right one."""
    others = [value for value in values(fact.relation) if value != fact.value]
    options = [fact.value, *(str(v) for v in rng.choice(others, size=3, replace=False))]
    order = rng.permutation(4).tolist()
    return [options[i] for i in order], order.index(0)


def asked(benchmark: str, count: int, skills: int, seed: int) -> list[Item]:
    """Four-option questions about facts; MMLU goes through its six subjects in turn."""
    code = ["medmcqa", "medqa", "mmlu_medical"].index(benchmark)
    rng = np.random.default_rng([WORLD_SEED, 30 + code, seed])
    known = [skill for skill in knowledge(skills) if isinstance(skill, Fact)]
    chosen = [known[i] for i in evenly(max(count, len(known)), len(known), rng)]
    if benchmark == "mmlu_medical":
        turn = dict.fromkeys(RELATIONS, 0)
        places: list[tuple[int, Fact]] = []
        for fact in chosen:
            places.append((turn[fact.relation], fact))
            turn[fact.relation] += 1
        chosen = [fact for _, fact in sorted(places, key=lambda place: place[0])]
    made: list[Item] = []
    for number, fact in enumerate(chosen[:count]):
        options, right = choices(fact, rng)
        question = medical_question(fact, story(rng, "test"), benchmark)
        made.append(FOUR_OPTIONS[benchmark](number, fact, question, options, right))
    return made


def medmcqa(number: int, fact: Fact, question: str, options: list[str], right: int) -> Item:
    letters = dict(zip(("opa", "opb", "opc", "opd"), options, strict=True))
    subject = RELATIONS[fact.relation][1]
    return {"id": f"toy-{number}", "question": question, **letters, "cop": right, "subject_name": subject}


def medqa(number: int, fact: Fact, question: str, options: list[str], right: int) -> Item:
    endings = {f"ending{i}": option for i, option in enumerate(options)}
    return {"id": f"toy-{number}", "sent1": question, "sent2": "", **endings, "label": right}


def mmlu_medical(number: int, fact: Fact, question: str, options: list[str], right: int) -> Item:
    subject = RELATIONS[fact.relation][0]
    return {"question": question, "subject": subject, "choices": options, "answer": right}


FOUR_OPTIONS: Mapping[str, Callable[[int, Fact, str, list[str], int], Item]] = {
    "medmcqa": medmcqa,
    "medqa": medqa,
    "mmlu_medical": mmlu_medical,
}


def pubmedqa(count: int, skills: int, seed: int) -> list[Item]:
    """Findings to be read: yes, no or maybe."""
    rng = np.random.default_rng([WORLD_SEED, 33, seed])
    known = [skill for skill in knowledge(skills) if isinstance(skill, Finding)]
    made: list[Item] = []
    for i in evenly(count, len(known), rng):
        finding, s = known[i], story(rng, "test")
        made.append(
            {
                "QUESTION": "Does it help?",
                "CONTEXTS": [
                    f"{s.person} the {s.job} asked {s.number} people at the {s.place}.",
                    f"The pain {finding.phrase}.",
                ],
                "LABELS": ["METHODS", "RESULTS"],
                "LONG_ANSWER": f"The pain {finding.phrase}, so the answer is {finding.answer}.",
                "final_decision": finding.answer,
            }
        )
    return made


CODE = ("humaneval", "humaneval_plus", "mbpp", "mbpp_plus")

BENCHMARKS: Mapping[str, Callable[[int, int, int], list[Item]]] = {
    "humaneval": lambda count, skills, seed: coded("humaneval", count, skills, seed, humaneval),
    "humaneval_plus": lambda count, skills, seed: coded("humaneval_plus", count, skills, seed, humaneval),
    "mbpp": lambda count, skills, seed: coded("mbpp", count, skills, seed, mbpp),
    "mbpp_plus": lambda count, skills, seed: coded("mbpp_plus", count, skills, seed, mbpp_plus),
    "medmcqa": lambda count, skills, seed: asked("medmcqa", count, skills, seed),
    "medqa": lambda count, skills, seed: asked("medqa", count, skills, seed),
    "pubmedqa": pubmedqa,
    "mmlu_medical": lambda count, skills, seed: asked("mmlu_medical", count, skills, seed),
}
"""Name -> (items, skills, seed) -> the rows of `<name>.jsonl`."""
