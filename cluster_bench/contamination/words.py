"""What counts as a word, and which words a benchmark item consists of.

One rule for prose and programs: a word is a run of letters and digits, in lower case. Case, punctuation,
operators, underscores, indentation and line breaks do not count, so `min_cost(a+b)` is min, cost, a, b.
"""

import json
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WORD = re.compile(r"[^\W_]+")

TEXTS: Mapping[str, tuple[str, ...]] = {
    "humaneval": ("prompt", "canonical_solution"),
    "humaneval_plus": ("prompt", "canonical_solution"),
    "mbpp": ("text", "code", "test_list"),
    "mbpp_plus": ("prompt", "code", "test_list"),
    "medmcqa": ("question", "opa", "opb", "opc", "opd"),
    "medqa": ("sent1", "sent2", "ending0", "ending1", "ending2", "ending3"),
    "pubmedqa": ("QUESTION", "CONTEXTS", "LONG_ANSWER"),
    "mmlu_medical": ("question", "choices"),
}
"""Columns whose words are an item's: what a model is asked, shown or to answer. Not the hidden tests, whose
lists of numbers meet those of any program."""


def words(text: str) -> list[str]:
    """The words of a text, in order.

    >>> words("Return min_cost(A + 1),\\n  or ﬁve.")
    ['return', 'min', 'cost', 'a', '1', 'or', 'five']
    """
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return WORD.findall(plain.lower())


def item_parts(name: str, file: Path) -> list[list[str]]:
    """The texts of each item of a benchmark; no run of words goes on from one text into the next."""
    return [_parts(json.loads(line), TEXTS[name]) for line in file.read_text("utf-8").split("\n") if line]


def _parts(row: Mapping[str, Any], columns: tuple[str, ...]) -> list[str]:
    parts: list[str] = []
    for column in columns:
        value = row.get(column) or ""
        parts += value if isinstance(value, list) else [str(value)]
    return parts
