"""The eight benchmarks in one table: what is asked, what counts as right, which columns that needs.

Chat prompts are user messages; the tokenizer's chat template goes around them, and the response is scored
from the first token after the generation prompt, as in training. Completion prompts are for a base model that
was never shown a template: plain text to go on from, up to a stop string; choices as lm-eval asks for them.
"""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Row = Mapping[str, Any]
Options = Literal["letters", "texts"]
Prompts = Literal["chat", "completion"]
LETTERS = "ABCDEFGH"


@dataclass(frozen=True)
class Form:
    """How a benchmark is asked."""

    options: Options = "letters"  # of a chat: what the model says, the letter of an option or the option
    prompts: Prompts = "chat"

    @property
    def is_plain(self) -> bool:
        """Whether the prompt is a text to go on from."""
        return self.prompts == "completion"


@dataclass(frozen=True)
class Item:
    """One question. A code item has tests, a choice item has choices."""

    prompt: str
    choices: tuple[str, ...] = ()
    answer: int = -1  # place of the right choice
    subject: str = ""
    preamble: str = ""  # code: what stands before the function in the prompt (imports, other functions)
    signature: str = ""  # code: the whole prompt where a completion may go on from it, else ""
    entry: str = ""  # code: the function asked for, "" where the prompt does not say
    tests: str = ""
    defines: tuple[str, ...] = ()
    reference: str = ""  # code: the program that comes with the item, "" where none does
    goes_on: bool = False  # code: a program is what goes before the response, and the response, as they are


@dataclass(frozen=True)
class Benchmark:
    """How the rows of one benchmark become items."""

    kind: Literal["code", "choice"]
    form: str  # of the prompt; part of the protocol id
    columns: tuple[str, ...]  # without these a row is refused
    item: Callable[[Row, Form], Item]
    stops: tuple[str, ...] = ()  # where a completion ends
    macro: bool = False  # the score is the mean over subjects


def humaneval(row: Row, form: Form) -> Item:
    """A signature and docstring to be completed; `check` of the tests gets the function."""
    prompt, entry = str(row["prompt"]), str(row["entry_point"])
    before, found, _ = prompt.rpartition(f"def {entry}(")
    tests = f"{row['test']}\ncheck({entry})\n" if str(row["test"]).strip() else ""
    return Item(
        prompt if form.is_plain else "Complete this Python function:\n" + prompt.rstrip(),
        preamble=before if found else "",
        signature=prompt,
        entry=entry,
        tests=tests,
        defines=(entry,),
        reference=prompt + str(row["canonical_solution"]) if row.get("canonical_solution") else "",
        goes_on=form.is_plain,
    )


def mbpp(row: Row, form: Form) -> Item:
    """A task in words and the first of its tests; EvalPlus keeps its many tests in `test`."""
    words = str(row["text"] if "text" in row else row["prompt"])
    listed = [str(test) for test in row["test_list"]]
    parts = [*row.get("test_imports", []), row.get("test_setup_code"), row.get("test") or "\n".join(listed)]
    tests = "\n".join(str(part) for part in parts if part) if listed else ""
    first = listed[0] if listed else ""
    return Item(
        f'"""\n{words}\n{first}\n"""\n' if form.is_plain else f"{words}\nIt must pass this test: {first}",
        tests=tests,
        defines=_defined(str(row["code"])),
        reference=str(row["code"]),
        goes_on=form.is_plain,
    )


def _defined(code: str) -> tuple[str, ...]:
    """Names of the functions and classes of a reference solution."""
    nodes = ast.parse(code.replace("\r\n", "\n")).body
    return tuple(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef))


def _choice(question: str, choices: list[str], answer: int, form: Form, subject: str = "") -> Item:
    if form.options == "texts" and not form.is_plain:
        return Item(question, tuple(choices), answer, subject)
    lines = "\n".join(f"{letter}. {choice}" for letter, choice in zip(LETTERS, choices, strict=False))
    letters = tuple(LETTERS[: len(choices)])
    if form.is_plain:
        return Item(
            f"{question}\n{lines}\nAnswer:", tuple(f" {letter}" for letter in letters), answer, subject
        )
    prompt = f"{question}\n{lines}\nAnswer with the letter of the right option."
    return Item(prompt, letters, answer, subject)


def medmcqa(row: Row, form: Form) -> Item:
    """Four options in columns of their own; `cop` counts from 0."""
    choices = [str(row[name]) for name in ("opa", "opb", "opc", "opd")]
    question = f"Question: {row['question']}\nChoices:" if form.is_plain else str(row["question"])
    return _choice(question, choices, int(row["cop"]), form)


def medqa(row: Row, form: Form) -> Item:
    """The four-option form: a case (`sent1`), at times a question after it (`sent2`)."""
    asked = "\n".join(str(row[name]) for name in ("sent1", "sent2") if row.get(name))
    question = f"Question: {asked}" if form.is_plain else asked
    return _choice(question, [str(row[f"ending{i}"]) for i in range(4)], int(row["label"]), form)


def mmlu(row: Row, form: Form) -> Item:
    """A question of one of six subjects."""
    subject, asked = str(row["subject"]), str(row["question"])
    about = (
        f"The following are multiple choice questions (with answers) about {subject.replace('_', ' ')}.\n\n"
    )
    question = about + asked.strip() if form.is_plain else asked
    return _choice(question, [str(choice) for choice in row["choices"]], int(row["answer"]), form, subject)


def pubmedqa(row: Row, form: Form) -> Item:
    """An abstract without its conclusion, and the question of its title."""
    choices = ("yes", "no", "maybe")
    right, parts = choices.index(str(row["final_decision"])), [str(part) for part in row["CONTEXTS"]]
    if form.is_plain:
        prompt = f"Abstract: {chr(10).join(parts)}\nQuestion: {row['QUESTION']}\nAnswer:"
        return Item(prompt, tuple(f" {choice}" for choice in choices), right)
    return Item(f"{' '.join(parts)}\nQuestion: {row['QUESTION']}\nAnswer yes, no or maybe.", choices, right)


_HUMANEVAL = ("prompt", "entry_point", "test")
_MBPP = ("code", "test_list")
_AFTER_A_FUNCTION = ("\nclass ", "\ndef ", "\n#", "\nif ", "\nprint(", "\n@", "\n```")
_AFTER_A_PROGRAM = ("\nassert ", '\n"""', "\nprint(", "\nif __name__", "\n```")
BENCHMARKS: Mapping[str, Benchmark] = {
    "humaneval": Benchmark("code", "complete", _HUMANEVAL, humaneval, _AFTER_A_FUNCTION),
    "humaneval_plus": Benchmark("code", "complete", _HUMANEVAL, humaneval, _AFTER_A_FUNCTION),
    "mbpp": Benchmark("code", "words+test", _MBPP, mbpp, _AFTER_A_PROGRAM),
    "mbpp_plus": Benchmark("code", "words+test", _MBPP, mbpp, _AFTER_A_PROGRAM),
    "medmcqa": Benchmark("choice", "options", ("question", "opa", "opb", "opc", "opd", "cop"), medmcqa),
    "medqa": Benchmark("choice", "options", ("sent1", "ending0", "ending3", "label"), medqa),
    "pubmedqa": Benchmark("choice", "context", ("QUESTION", "CONTEXTS", "final_decision"), pubmedqa),
    "mmlu_medical": Benchmark(
        "choice", "options", ("question", "choices", "answer", "subject"), mmlu, macro=True
    ),
}
