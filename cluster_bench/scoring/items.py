"""The items of a benchmark from its file: rows that cannot be scored are refused by name of file and line."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster_bench.scoring.benchmarks import BENCHMARKS, Form, Item


def items(name: str, file: Path, form: Form, limit: int | None) -> list[Item]:
    """The items of a benchmark, in the order of its file; `limit` keeps the first ones of each subject.

    ValueError, naming file and line, for a row that is not JSON, lacks a column or has no tests.
    """
    benchmark = BENCHMARKS[name]
    kept: list[Item] = []
    of_subject: dict[str, int] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").rstrip("\n").split("\n"), 1):
        try:
            row = json.loads(line)
            missing = [column for column in benchmark.columns if column not in row]
            if missing:
                raise ValueError(
                    f"there is no column {missing[0]}; {name} needs {', '.join(benchmark.columns)}"
                )
            item = benchmark.item(row, form)
            if benchmark.kind == "code" and not item.tests:
                raise ValueError("the item has no tests")
            if benchmark.kind == "choice" and not 0 <= item.answer < len(item.choices):
                raise ValueError(f"answer {item.answer} is not one of {len(item.choices)} choices")
        except (ValueError, KeyError, TypeError, SyntaxError) as error:
            raise ValueError(f"{file.name}, line {number}: {error}") from error
        of_subject[item.subject] = of_subject.get(item.subject, 0) + 1
        if limit is None or of_subject[item.subject] <= limit:
            kept.append(item)
    if len(kept) < 2:
        raise ValueError(f"{file.name}: {len(kept)} items; a score with a standard error needs at least 2")
    return kept


def limit_of(limit: int | Mapping[str, int] | None, name: str) -> int | None:
    """The limit of a benchmark, where each may have its own; none where it is not named."""
    return limit.get(name) if isinstance(limit, Mapping) else limit


def dataset(**metadata: Any) -> dict[str, Any]:
    """What the task files give to lm-eval: the items as a data set with one split."""
    from datasets import Dataset

    name, folder = str(metadata["benchmark"]), Path(metadata["folder"])
    form = Form(metadata["options"], metadata["prompts"])
    limit = limit_of(metadata["limit"], name)
    rows = items(name, folder / f"{name}.jsonl", form, limit)[: metadata["first"]]
    columns = [{"prompt": row.prompt, "choices": list(row.choices), "answer": row.answer} for row in rows]
    return {"test": Dataset.from_list(columns)}
