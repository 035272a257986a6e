"""How a tuned model is scored: benchmarks, prompts, programs run in a sandbox.

A scorer is a frozen dataclass: its fields are its hyper-parameters, its call is the method.
"""

from collections.abc import Mapping

from cluster_bench.scoring.harness import LmEval

SCORERS: Mapping[str, type] = {"lm_eval": LmEval}
