"""Base models: what is fine-tuned.

A method is a frozen dataclass that fills a workspace's folder and returns a `Model`, Hugging Face layout.
"""

from collections.abc import Mapping

from cluster_bench.models.gguf import Gguf
from cluster_bench.models.hub import Hub
from cluster_bench.models.toy import ToyBase

MODELS: Mapping[str, type] = {"gguf": Gguf, "hub": Hub, "toy": ToyBase}
