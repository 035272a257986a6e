"""One torchrun process of a training: joins the others, trains its ranks, and leaves word when it fails.

    torchrun ... -m cluster_bench.training.worker <request.json>

What it does meanwhile stands in `steps.py`. It writes, beside the request, `process_<process>.pid` and, when
it fails, `process_<process>.error`.
"""

import os
import signal
import sys
import time
import traceback
from pathlib import Path

import torch
import torch.distributed as dist

from cluster_bench.machine import die_with_parent
from cluster_bench.training.alive import Alive
from cluster_bench.training.request import Request
from cluster_bench.training.steps import train
from cluster_bench.training.torchrun import PARENT

SETTLE_S = (
    1.0  # a process that fails because another was killed ends after it, so that torchrun names that one
)


def main(path: Path) -> None:
    """Train as one process of a torchrun job."""
    request = Request.read(path)
    process = int(os.environ["RANK"])
    folder, cuda = Path(request.folder), request.machine.device == "cuda"
    (folder / f"process_{process}.pid").write_text(str(os.getpid()))
    torch.set_num_threads(request.machine.threads)
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    alive = Alive(folder, process)
    try:
        dist.init_process_group("nccl" if cuda else "gloo")
        train(request, alive)
        dist.destroy_process_group()
    except SystemExit:
        raise  # told to end, and a snapshot taken: not a failure
    except BaseException:
        draft = folder / f".process_{process}.error"
        draft.write_text(traceback.format_exc())
        draft.rename(folder / f"process_{process}.error")
        time.sleep(SETTLE_S)
        raise


if __name__ == "__main__":
    die_with_parent(int(os.environ[PARENT]), signal.SIGKILL)
    main(Path(sys.argv[1]))
