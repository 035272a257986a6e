"""SLURM: an sbatch script for one run over the machines of an allocation; sweeps are Hydra's, see `conf/`.

The script starts one process on each machine; node 0's leads, and each calls torchrun with a c10d rendezvous
at a port that node 0 tells through the store. When its time is up, or a machine fails, the job is put back
into the queue: what the store has is not made again.
"""

import shlex
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from operator import mul
from pathlib import Path

from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Machine

SCRIPT = """\
#!/bin/bash
{options}
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@120
set -u
cd {folder}

requeue() {{
    trap '' TERM
    kill -TERM "$step"
    for _ in $(seq 60); do
        kill -0 "$step" 2>/dev/null || break
        sleep 1
    done
    # A job that was cancelled is no longer running, and stays cancelled.
    if scontrol show job "$SLURM_JOB_ID" | grep -q JobState=RUNNING; then
        echo "out of time: back into the queue; what the store has is not made again" >&2
        scontrol requeue "$SLURM_JOB_ID"
    fi
    exit 143
}}
trap requeue TERM

srun --kill-on-bad-exit=1 {command} \\
    {launcher} &
step=$!
wait "$step"
"""
NAME = '"slurm-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}"'  # another for each start: nothing stale is met
MEET = f'launcher=nodes launcher.nodes="$SLURM_NNODES" launcher.run={NAME}'


@dataclass(frozen=True, config=STRICT)
class Slurm:
    """What a job asks SLURM for."""

    nodes: int  # machines of a script; a sweep's jobs have one each
    minutes: int
    partition: str | None
    account: str | None
    options: list[str]  # further options of a script, as sbatch takes them

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.minutes < 1:
            raise ValueError(f"nodes and minutes must be 1 or more, got {self.nodes} and {self.minutes}")

    def script(self, overrides: Sequence[str], machine: Machine) -> str:
        """The sbatch script of what these overrides describe and this machine could run; its processes divide
        over the nodes."""
        each = machine.processes // self.nodes
        options = {
            "job-name": "cluster-bench",
            "nodes": self.nodes,
            "ntasks-per-node": 1,
            "cpus-per-task": each * machine.threads,
            "gpus-per-node": gpus(machine.device, each),
            "time": self.minutes,
            "partition": self.partition,
            "account": self.account,
        }
        lines = [f"--{name}={value}" for name, value in options.items() if value is not None]
        kept = [override for override in overrides if not override.startswith(("launcher=", "launcher."))]
        return SCRIPT.format(
            options="\n".join(f"#SBATCH {line}" for line in [*lines, *self.options]),
            folder=shlex.quote(str(Path.cwd())),
            command=shlex.join([sys.executable, "-m", "cluster_bench", *kept]),
            launcher=MEET if self.nodes > 1 else "launcher=local",
        )


def gpus(device: str, processes: int) -> int | None:
    """How many GPUs so many processes take, one each; none without a GPU."""
    return processes if device == "cuda" else None


def prepare_sweep() -> None:
    """What `conf/hydra/launcher/slurm.yaml` rests on. Raises ValueError if the extra is not installed."""
    from omegaconf import OmegaConf

    if not find_spec("hydra_plugins") or not find_spec("hydra_plugins.hydra_submitit_launcher"):
        raise ValueError(
            "launcher: sweeps on SLURM need the extra: pip install 'cluster-bench[slurm]'; "
            "without -m, launcher=slurm prints an sbatch script and needs none"
        )
    OmegaConf.register_new_resolver("gpus", gpus, replace=True)
    OmegaConf.register_new_resolver("cores", mul, replace=True)
