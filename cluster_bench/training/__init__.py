"""How the selected rows are trained on: a plan, a loss, and torchrun processes that follow them.

`paper.py` is the method (the parent's side), `worker.py` one torchrun process; `plan.py`, `loss.py` and
`schedule.py` are the pure parts that both rest on, `torchrun.py` starts the processes and ends them.
"""

from collections.abc import Mapping

from cluster_bench.training.paper import PaperLoop

TRAINERS: Mapping[str, type] = {"paper": PaperLoop}
