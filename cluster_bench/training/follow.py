"""The side of every machine but node 0: join each torchrun job that node 0 calls to, until node 0 ends."""

import time
from pathlib import Path

from cluster_bench.launch.meeting import SILENT_S, Job, Watched, beating, calls
from cluster_bench.launch.nodes import Nodes
from cluster_bench.training.failure import log_of
from cluster_bench.training.together import rendezvous
from cluster_bench.training.torchrun import GRACE_S, end_agent, start_agent

POLL_S = 0.2  # of a shared file system
AFTER_FAILURE_S = 5.0  # node 0 says soon what happened, or it is what happened


def follow(nodes: Nodes) -> None:
    """Join what node 0 starts. Raises RuntimeError that says how node 0 failed, or that it is gone."""
    joined, patience_s = "", SILENT_S
    with beating(nodes) as say:
        first = Watched(nodes.meeting, 0)
        while not _is_over(first, nodes, patience_s):
            job = calls(nodes.meeting) if first.look() else None
            if job and job.id != joined:
                joined = job.id
                code = _join(job, nodes, first)
                say(job=job.id, code=code)
                patience_s = AFTER_FAILURE_S if code else SILENT_S
            time.sleep(POLL_S)


def _join(job: Job, nodes: Nodes, first: Watched) -> int:
    """Run this machine's share of the job; return how torchrun ended."""
    request = Path(job.request)
    log = log_of(request.parent, nodes.node)
    agent = start_agent(rendezvous(job, nodes), job.module, request, job.threads, log)
    over: float | None = None
    try:
        while agent.exitcode is None and (over is None or time.monotonic() < over):
            _is_over(first, nodes, SILENT_S)
            if over is None and calls(nodes.meeting) != job:
                over = time.monotonic() + GRACE_S
            time.sleep(POLL_S)
    finally:
        end_agent(agent)
    return agent.exitcode or 0


def _is_over(first: Watched, nodes: Nodes, patience_s: float) -> bool:
    """Whether node 0 has ended well. Raises RuntimeError where it has not, or is gone."""
    said = first.look()
    if said.get("ended"):
        raise RuntimeError(f"{first.name} failed: {said['ended']}")
    if not said and first.silent_s > nodes.wait_s:
        raise RuntimeError(f"node 0 of run {nodes.run!r} did not come within {nodes.wait_s:g} s")
    if said and first.silent_s > patience_s:
        raise RuntimeError(f"{first.name} has been silent for {first.silent_s:.0f} s")
    return "ended" in said
