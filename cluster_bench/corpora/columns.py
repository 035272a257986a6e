"""Which columns of a data set are the prompt and the answer."""

from collections.abc import Mapping
from typing import Any, cast

Columns = tuple[str, str, str]
"""Names of the columns for instruction, its input, and answer; "" where a set has no input column."""

ALPACA: Columns = ("instruction", "input", "output")

NO_INPUT = ("", "<noinput>")  # what sets in this layout write where an instruction stands alone


def texts(row: object, columns: Columns, where: str) -> tuple[str, str]:
    """Prompt (the instruction, then its input on a new line if there is one) and answer of one row.

    ValueError says where, what is missing and what is there.

    >>> texts({"instruction": "Add.", "input": "1, 2", "output": "3"}, ALPACA, "line 1")
    ('Add.\\n1, 2', '3')
    """
    if not isinstance(row, Mapping):
        raise ValueError(f"{where}: a row must be an object with columns, not {type(row).__name__}")
    values = cast("Mapping[str, Any]", row)
    instruction, extra, answer = columns
    for name in (instruction, answer):
        if name not in values:
            raise ValueError(f"{where}: no column {name!r}; it has {', '.join(values) or 'none'}")
    for name in columns:
        if not isinstance(values.get(name) or "", str) or (name != extra and values[name] is None):
            raise ValueError(f"{where}: column {name!r} must be text, got {values[name]!r}")
    more: str = values.get(extra) or ""
    prompt: str = values[instruction]
    return prompt if more.strip().lower() in NO_INPUT else f"{prompt}\n{more}", values[answer]
