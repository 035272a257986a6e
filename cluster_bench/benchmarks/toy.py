"""The eight benchmarks of the toy world: twins of the published ones, in the same columns."""

import hashlib
import json

from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Benchmarks, Workspace
from cluster_bench.world.items import BENCHMARKS, CODE


@dataclass(frozen=True, config=STRICT)
class ToyBenchmarks:
    """Writes `<name>.jsonl` for four code and four medical benchmarks; no item occurs in a toy corpus."""

    items: int  # of each benchmark
    code_skills: int  # the corpora's
    medical_skills: int
    seed: int

    def __post_init__(self) -> None:
        if self.items < 1:
            raise ValueError(f"items {self.items} must be at least 1")

    def __call__(self, workspace: Workspace) -> Benchmarks:
        items: dict[str, int] = {}
        digests: dict[str, str] = {}
        for name, make in BENCHMARKS.items():
            skills = self.code_skills if name in CODE else self.medical_skills
            rows = make(self.items, skills, self.seed)
            content = "".join(json.dumps(row) + "\n" for row in rows).encode()
            (workspace.folder / f"{name}.jsonl").write_bytes(content)
            items[name], digests[name] = len(rows), hashlib.sha256(content).hexdigest()
        return Benchmarks(workspace.folder, items, digests)
