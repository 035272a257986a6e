"""Several machines, one run: the same command line on each. Node 0 leads; the others join what it starts."""

import re
import socket
from pathlib import Path

from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT


@dataclass(frozen=True, config=STRICT)
class Nodes:
    """This machine's place in a run over several machines with one shared file system."""

    nodes: int  # machines, each with an even share of the processes
    node: int  # this one; 0 leads
    run: str  # the run's name, the same on every machine and not used by another at the same time
    address: str | None  # this machine's name as the others reach it; null: its host name
    port: int  # where node 0's torchrun listens; 0: one that the system chooses, told through the store
    folder: str  # on the shared file system; the run meets in a folder of its own below it
    wait_s: float  # for the other machines to come

    def __post_init__(self) -> None:
        if self.nodes < 2:
            raise ValueError(
                f"nodes must be 2 or more, got {self.nodes}; set launcher.nodes or CLUSTER_BENCH_NODES"
            )
        if not 0 <= self.node < self.nodes:
            raise ValueError(
                f"node must be 0 to {self.nodes - 1}, another on each machine, got {self.node}; "
                "set launcher.node or CLUSTER_BENCH_NODE"
            )
        if not re.fullmatch(r"[\w.-]+", self.run):
            raise ValueError(
                f"run must be a name of letters, digits, '.', '_', '-', the same on all, got {self.run!r}; "
                "set launcher.run or CLUSTER_BENCH_RUN"
            )
        if not 0 <= self.port < 65536 or self.wait_s <= 0:
            raise ValueError(f"port must be 0 to 65535 and wait_s above 0, got {self.port} and {self.wait_s}")

    @property
    def host(self) -> str:
        """This machine's name, as the others reach it."""
        return self.address or socket.gethostname()

    @property
    def meeting(self) -> Path:
        """The folder where the machines of this run meet."""
        return Path(self.folder) / self.run
