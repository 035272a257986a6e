"""How the selected rows are trained on: a plan, a loss, and torchrun processes that follow them.

`paper.py` and `fast.py` are the methods (the parent's side), `worker.py` one torchrun process; `steps.py` is
its step loop, `learner.py` what that loop changes. `plan.py`, `packing.py`, `loss.py` and `schedule.py` are
the pure parts that all rest on, `torchrun.py` starts the processes and ends them.
"""

from collections.abc import Mapping

from cluster_bench.training.fast import FastLoop
from cluster_bench.training.paper import PaperLoop

TRAINERS: Mapping[str, type] = {"paper": PaperLoop, "fast": FastLoop}
