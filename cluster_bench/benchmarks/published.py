"""Where the published items of the eight benchmarks are, and what a row of each must have: one table.

A row lies in a file of local items as it is on the hub, PubMedQA's in the columns of its authors' file.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def whole(rows: Sequence[Row]) -> list[Row]:
    """Every row as it is."""
    return list(rows)


def mbpp_test(rows: Sequence[Row]) -> list[Row]:
    """Of all 974 tasks the 500 of the test split; `task_id` counts through the whole set."""
    return [row for row in rows if row.get("task_id") in range(11, 511)]


def pubmedqa_test(rows: Sequence[Row]) -> list[Row]:
    """Of the 1,000 labelled rows the 500 of the test split, the hub's nested columns laid flat."""
    return [row for row in map(_flat, rows) if row["PUBMED_ID"] in pubmedqa_test_ids()]


def _flat(row: Row) -> Row:
    if "context" not in row:
        return row
    context = row["context"]
    return {
        "PUBMED_ID": str(row["pubid"]),
        "QUESTION": row["question"],
        "CONTEXTS": list(context["contexts"]),
        "LABELS": list(context["labels"]),
        "final_decision": row["final_decision"],
        "LONG_ANSWER": row["long_answer"],
    }


@cache
def pubmedqa_test_ids() -> frozenset[str]:
    """The PubMed ids that the authors set aside for testing (their test_ground_truth.json)."""
    return frozenset(Path(__file__).with_name("pubmedqa_test.txt").read_text().split())


@dataclass(frozen=True)
class Published:
    """One benchmark: its file among local ones, its place on the hub, its columns."""

    file: str
    repo: str  # on the hub; "" for what a package ships
    split: str
    items: int  # of the split that is scored; another number is another version
    columns: tuple[str, ...]  # without these a row is refused
    id: str = ""  # column that no two rows share
    tests: str = ""  # column that must not be empty; "" for multiple choice
    configs: tuple[str | None, ...] = (None,)
    scored: Callable[[Sequence[Row]], list[Row]] = whole  # of the split's rows


_HUMANEVAL = ("task_id", "prompt", "entry_point", "test")
_ENDINGS = ("ending0", "ending1", "ending2", "ending3")
MEDICAL_SUBJECTS = (
    "anatomy",
    "clinical_knowledge",
    "college_biology",
    "college_medicine",
    "medical_genetics",
    "professional_medicine",
)

PUBLISHED: Mapping[str, Published] = {
    "humaneval": Published("humaneval.jsonl", "", "test", 164, _HUMANEVAL, "task_id", "test"),
    "humaneval_plus": Published(  # EvalPlus's HumanEval+ v0.1.10
        "humaneval_plus.jsonl", "evalplus/humanevalplus", "test", 164, _HUMANEVAL, "task_id", "test"
    ),
    "mbpp": Published(
        "mbpp.jsonl",
        "google-research-datasets/mbpp",
        "test",
        500,
        ("task_id", "text", "code", "test_list"),
        "task_id",
        "test_list",
        configs=("full",),
        scored=mbpp_test,
    ),
    "mbpp_plus": Published(  # EvalPlus's MBPP+ v0.2.0; v0.1.0 had 399 tasks
        "mbpp_plus.jsonl",
        "evalplus/mbppplus",
        "test",
        378,
        ("task_id", "prompt", "code", "test_list", "test"),
        "task_id",
        "test",
    ),
    "medmcqa": Published(  # its test split has no answers
        "medmcqa.jsonl",
        "openlifescienceai/medmcqa",
        "validation",
        4183,
        ("question", "opa", "opb", "opc", "opd", "cop"),
        "id",
    ),
    "medqa": Published(
        "medqa_4options.jsonl",
        "GBaker/MedQA-USMLE-4-options-hf",
        "test",
        1273,
        ("sent1", *_ENDINGS, "label"),
        "id",
    ),
    "pubmedqa": Published(
        "pubmedqa.jsonl",
        "qiaojin/PubMedQA",
        "train",
        500,
        ("QUESTION", "CONTEXTS", "final_decision"),
        "PUBMED_ID",
        configs=("pqa_labeled",),
        scored=pubmedqa_test,
    ),
    "mmlu_medical": Published(
        "mmlu_medical.jsonl",
        "cais/mmlu",
        "test",
        1089,
        ("question", "subject", "choices", "answer"),
        configs=MEDICAL_SUBJECTS,
    ),
}
FILES: Mapping[str, str] = {name: published.file for name, published in PUBLISHED.items()}


def refuse_names(names: Sequence[str], *others: Iterable[str]) -> None:
    """ValueError for a name that is no benchmark's, and for `names` that are none or the same one twice."""
    for name in chain(names, *others):
        if name not in PUBLISHED:
            raise ValueError(f"benchmark {name!r} is not one of {', '.join(PUBLISHED)}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"names must be distinct and at least one, got {list(names)}")
