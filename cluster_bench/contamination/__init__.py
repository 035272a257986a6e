"""Which benchmark items a corpus has seen: rows and items that share a run of words.

A detector is a frozen dataclass that returns a `Contamination`.
"""

from collections.abc import Mapping

from cluster_bench.contamination.ngrams import Ngrams

DETECTORS: Mapping[str, type] = {"ngrams": Ngrams}
