"""Benchmark items: one `<name>.jsonl` per benchmark, in the columns of the published data set.

A method is a frozen dataclass that fills a workspace's folder and returns `Benchmarks`.
"""

from collections.abc import Mapping

from cluster_bench.benchmarks.hub import HubBenchmarks
from cluster_bench.benchmarks.local import LocalBenchmarks
from cluster_bench.benchmarks.toy import ToyBenchmarks

BENCHMARKS: Mapping[str, type] = {"hub": HubBenchmarks, "local": LocalBenchmarks, "toy": ToyBenchmarks}
