"""Who runs a torchrun job: this machine alone, or node 0 with others that it calls, watches and names."""

import socket
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster_bench.launch.meeting import BEAT_S, SILENT_S, Job, Watched, called, leader, listening
from cluster_bench.launch.nodes import Nodes

SETTLE_S = 3.0  # for the other machines to say how their torchrun ended
RENDEZVOUS_S = 60.0  # beyond the wait for the other machines, so that ours ends first and names them


@dataclass(frozen=True)
class Alone:
    """This machine, which meets nobody: torchrun takes a free port for itself."""

    processes: int
    listener: None = None

    @property
    def arguments(self) -> list[str]:
        """What torchrun is told about where to meet."""
        return ["--standalone", f"--nproc-per-node={self.processes}"]

    def check(self) -> None:
        """Nobody can be missing."""

    def ends(self, own: int) -> dict[str, int | None]:
        """How torchrun ended."""
        return {"": own}


@dataclass(frozen=True)
class Leading:
    """Node 0, while a job runs."""

    job: Job
    nodes: Nodes
    listener: socket.socket
    others: list[Watched]

    @property
    def arguments(self) -> list[str]:
        """What torchrun is told about where to meet."""
        return rendezvous(self.job, self.nodes)

    def check(self) -> None:
        """Raise RuntimeError that names a machine that did not come, or is gone."""
        for other in self.others:
            if other.look():
                if other.silent_s > SILENT_S:
                    raise RuntimeError(f"training: {other.name} has been silent for {other.silent_s:.0f} s")
            elif other.silent_s > self.nodes.wait_s:
                raise RuntimeError(
                    f"training: node {other.node} did not come within {self.nodes.wait_s:g} s; start the "
                    f"same line there with launcher.node={other.node} launcher.run={self.nodes.run}"
                )

    def ends(self, own: int) -> dict[str, int | None]:
        """How torchrun ended on each machine: 0 where it has not, None where the machine is gone."""
        found: dict[str, int | None] = {f"node 0 ({self.nodes.host})": own}
        deadline = time.monotonic() + SETTLE_S
        for other in self.others:
            while (said := other.look()).get("job") != self.job.id and time.monotonic() < deadline:
                time.sleep(BEAT_S / 10)
            alive = 0 if other.silent_s < SETTLE_S else None
            found[other.name] = said["code"] if said.get("job") == self.job.id else alive
        return found


def rendezvous(job: Job, nodes: Nodes) -> list[str]:
    """torchrun's arguments: all agents meet at node 0's port."""
    serves = f"is_host={int(nodes.node == 0)},join_timeout={int(job.wait_s + RENDEZVOUS_S)}"
    return [
        f"--nnodes={job.nodes}",
        f"--nproc-per-node={job.processes}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={job.endpoint}",
        f"--rdzv-id={job.id}",
        f"--rdzv-conf={serves}",
        f"--local-addr={nodes.host}",
    ]


@contextmanager
def call(meeting: str, module: str, request: Path, processes: int, threads: int) -> Generator[Leading]:
    """Call the other machines to a job. Raises ValueError if the configured port is in use."""
    nodes = leader(Path(meeting))
    with listening(nodes.port) as listener:
        endpoint = f"{nodes.host}:{listener.getsockname()[1]}"
        job = Job(
            uuid.uuid4().hex,
            module,
            str(request.resolve()),
            processes // nodes.nodes,
            threads,
            nodes.nodes,
            endpoint,
            nodes.wait_s,
        )
        with called(Path(meeting), job):
            others = [Watched(Path(meeting), node) for node in range(1, nodes.nodes)]
            yield Leading(job, nodes, listener, others)
