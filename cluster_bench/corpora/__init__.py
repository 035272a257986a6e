"""Instruction sets: where prompts and answers come from.

A corpus method is a frozen dataclass whose call returns a `Corpus`.
"""

from collections.abc import Mapping

from cluster_bench.corpora.hub import HubDataset
from cluster_bench.corpora.jsonl import Jsonl
from cluster_bench.corpora.toy_code import ToyCode
from cluster_bench.corpora.toy_medical import ToyMedical

CORPORA: Mapping[str, type] = {
    "hub": HubDataset,
    "jsonl": Jsonl,
    "toy_code": ToyCode,
    "toy_medical": ToyMedical,
}
