"""What a snapshot costs: the time that training stands still for it, and all CPU time until it is written."""

import tempfile
import time
from pathlib import Path

from cluster_bench.artifacts import Machine
from cluster_bench.bench.lines import Line
from cluster_bench.bench.loops import Arm
from cluster_bench.training.snapshots import Snapshots

TIMES = 5


def lines(arm: Arm) -> list[Line]:
    """Shares of the time between two snapshots, which is also the most that a kill can cost."""
    import torch.distributed as dist

    period_s = 60 * Machine().snapshot_minutes
    still: list[float] = []
    whole: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=0, world_size=1)
        snapshots = Snapshots(Path(folder), "bench", Machine().snapshot_minutes)
        for step in range(TIMES):
            wall, cpu = time.perf_counter(), time.process_time()
            snapshots.take(arm.learner, step + 1)
            still.append(time.perf_counter() - wall)
            snapshots.close()
            whole.append(time.process_time() - cpu)
        dist.destroy_process_group()
        written = sum(path.stat().st_size for path in Path(folder).glob(f"step_{TIMES}/*"))
    note = f"{written / 2**20:.0f} MiB of state, every {period_s:.0f} s"
    return [
        Line("14", "training stands still for a snapshot", min(still) / period_s, "<= 0.02", note=note),
        Line("14", "CPU time of a snapshot, written", min(whole) / period_s, "<= 0.02", note=note),
    ]
