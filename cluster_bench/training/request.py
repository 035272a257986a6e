"""What the parent tells the processes of a training, as one JSON file."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster_bench.artifacts import Machine


@dataclass(frozen=True)
class Request:
    """All that the processes are told."""

    folder: str
    weights: str  # the base model's folder
    plan_hash: str
    machine: Machine
    kind: str  # the training method's name in the registry
    loop: dict[str, Any]  # its fields
    done_steps: int = 0  # of an earlier try: the snapshot to go on from

    def write(self, path: Path) -> None:
        """Write it where `read` will look."""
        path.write_text(json.dumps(dataclasses.asdict(self), indent=2))

    @classmethod
    def read(cls, path: Path) -> "Request":
        """Read a request as the parent wrote it."""
        told: dict[str, Any] = json.loads(path.read_text())
        told["machine"] = Machine(**told["machine"])
        return cls(**told)
