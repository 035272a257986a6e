"""Where the processes of a run start: on this machine, on several that meet, or in jobs of SLURM.

A launcher decides where an artefact is made, never which, so it is in no address.
"""

from collections.abc import Mapping

from cluster_bench.launch.local import Local
from cluster_bench.launch.nodes import Nodes
from cluster_bench.launch.slurm import Slurm

LAUNCHERS: Mapping[str, type] = {"local": Local, "nodes": Nodes, "slurm": Slurm}
"""No method: a launcher starts runs, and is no part of one."""
