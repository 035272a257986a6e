"""What the base models are pre-trained on: the formats, the simple skills, and answers that can be read off.

A lesson whose answer is spelled out in the prompt teaches how programs and answers are written without
teaching any skill; the skills that are not simple stay unknown.
"""

import numpy as np

from cluster_bench.world.lexicon import DISEASES, JARGON, RELATIONS
from cluster_bench.world.medicine import Fact, Finding, knowledge, values
from cluster_bench.world.programs import Program, any_body, programs
from cluster_bench.world.stories import (
    Story,
    code_prompt,
    exam_code,
    exam_finding,
    medical_prompt,
    medical_question,
    pick,
    story,
)

VERDICTS = ["yes", "no", "maybe"]


def lesson(rng: np.random.Generator, code: int, medical: int) -> tuple[str, str]:
    """A random prompt and its answer, in a world of that many code and medical skills."""
    s = story(rng, "train")
    if rng.random() < 0.6:
        return code_lesson(rng, code, s)
    if rng.random() < 0.7:
        return fact_lesson(rng, medical, s)
    return finding_lesson(rng, medical, s)


def code_lesson(rng: np.random.Generator, skills: int, s: Story) -> tuple[str, str]:
    """A simple program, or any program under any name, spelled out before it is asked for."""
    before = ""
    if rng.random() < 0.5:
        simple = [program for program in programs(skills) if program.simple]
        program = simple[int(rng.integers(len(simple)))]
    else:
        body, is_list = any_body(rng)
        program = Program(f"{pick(rng, JARGON)} {'row' if is_list else 'score'}", body, True)
        spelled = " ".join(body.replace("{a}", s.argument).replace("return", "").split())
        before = f"The {program.term} is {spelled}. "
    benchmark = pick(rng, ["humaneval", "mbpp", "", ""])
    if benchmark:
        shown = rng.integers(0, 10, size=2).tolist()
        return before + exam_code(program, s, benchmark, shown), program.source(s.function, s.argument)
    asked = code_prompt(rng, program, s, pick(rng, ["oss", "evol"]))
    return before + asked, program.source(s.function, s.argument)


def fact_lesson(rng: np.random.Generator, skills: int, s: Story) -> tuple[str, str]:
    """A simple fact, or any fact, true or not, stated before it is asked for."""
    before = ""
    if rng.random() < 0.3:
        simple = [skill for skill in knowledge(skills) if isinstance(skill, Fact) and skill.simple]
        fact = simple[int(rng.integers(len(simple)))]
    else:
        relation = pick(rng, list(RELATIONS))
        fact = Fact(pick(rng, DISEASES), relation, pick(rng, values(relation)), True)
        before = f"In {fact.disease} the {relation} is {fact.value}. "
    benchmark = pick(rng, ["medmcqa", "medqa", "mmlu_medical", "", ""])
    if benchmark:
        return before + medical_question(fact, s, benchmark), fact.answer
    return before + medical_prompt(rng, fact, s), fact.answer


def finding_lesson(rng: np.random.Generator, skills: int, s: Story) -> tuple[str, str]:
    """A simple finding, or any finding with its reading, right or not, stated before."""
    findings = [skill for skill in knowledge(skills) if isinstance(skill, Finding)]
    before = ""
    if rng.random() < 0.3:
        simple = [finding for finding in findings if finding.simple]
        finding = simple[int(rng.integers(len(simple)))]
    else:
        phrase = findings[int(rng.integers(len(findings)))].phrase
        finding = Finding(phrase, pick(rng, VERDICTS), True)
        before = f"If the pain {phrase}, say {finding.answer}. "
    if rng.random() < 0.5:
        return before + exam_finding(finding, s), finding.answer
    return before + medical_prompt(rng, finding, s), finding.answer
