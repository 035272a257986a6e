"""Which rows are trained on.

A selector is a frozen dataclass: its fields are its hyper-parameters, its call turns tokens and clusters
into rows, as positions among the n usable rows. Rows in no cluster (label -1) are never selected.
Axes: n rows, k clusters, m selected rows.
"""

from collections.abc import Mapping

from cluster_bench.selection.all import Everything
from cluster_bench.selection.balanced import Balanced
from cluster_bench.selection.oversampled import Oversampled
from cluster_bench.selection.random import Random

SELECTORS: Mapping[str, type] = {
    "all": Everything,
    "balanced": Balanced,
    "oversampled": Oversampled,
    "random": Random,
}
