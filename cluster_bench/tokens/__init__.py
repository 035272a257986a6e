"""How a model reads the corpus.

A tokenizer method is a frozen dataclass: its fields are its hyper-parameters, its call is the method.
"""

from collections.abc import Mapping

from cluster_bench.tokens.chat import ChatTokens

TOKENIZERS: Mapping[str, type] = {"chat": ChatTokens}
