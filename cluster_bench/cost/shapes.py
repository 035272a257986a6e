"""The shape of a decoder-only transformer, and how many parameters it has.

The table holds the `config.json` of the paper's models on the Hugging Face hub, as the papers of Llama 2
(arXiv 2307.09288) and Code Llama (arXiv 2308.12950) describe them. Code Llama's Python models have Llama 2's
32,000 tokens; its other models have 16 more. The tests build each on the meta device and count.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Shape:
    """A Llama, or with `gated` off an MPT: two matrices in the MLP instead of three."""

    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    tied: bool = False  # one matrix for the embedding and the output head
    gated: bool = True

    @property
    def kv(self) -> int:
        """Width of the keys, and of the values."""
        return self.hidden // self.heads * self.kv_heads

    @property
    def layer(self) -> int:
        """Parameters of one layer: attention, MLP, two norms."""
        attention = 2 * self.hidden * (self.hidden + self.kv)
        return attention + (2 + self.gated) * self.hidden * self.intermediate + 2 * self.hidden

    @property
    def embedding(self) -> int:
        """Parameters of the embedding; the output head has as many."""
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters, tied ones once."""
        return self.layers * self.layer + self.embedding * (2 - self.tied) + self.hidden

    @property
    def multiplied(self) -> int:
        """Parameters that every token is multiplied with: all but the embedding, which is looked up."""
        return self.layers * self.layer + self.embedding + self.hidden


_7B = Shape(vocab=32000, hidden=4096, layers=32, heads=32, kv_heads=32, intermediate=11008)
_13B = Shape(vocab=32000, hidden=5120, layers=40, heads=40, kv_heads=40, intermediate=13824)
SHAPES: Mapping[str, Shape] = {
    "meta-llama/Llama-2-7b-hf": _7B,
    "meta-llama/Llama-2-13b-hf": _13B,
    "codellama/CodeLlama-7b-Python-hf": _7B,
    "codellama/CodeLlama-13b-Python-hf": _13B,
}


def shape_of(model: Mapping[str, Any]) -> Shape:
    """The shape of the model that a line of the configuration names: from the table, or from its folder.

    Raises ValueError where neither tells.
    """
    name = str(model.get("repo", model["kind"]))
    if name in SHAPES:
        return SHAPES[name]
    config = Path(name) / "config.json"
    if not config.is_file():
        raise ValueError(
            f"model: the shape of {name} is not known here, only of {', '.join(SHAPES)} "
            "and of a folder with a config.json"
        )
    return read(config)


def read(config: Path) -> Shape:
    """The shape that a `config.json` in the Hugging Face layout describes; ValueError unless a Llama's."""
    told: dict[str, Any] = json.loads(config.read_text())
    if told.get("model_type") not in ("llama", "mistral"):
        raise ValueError(f"{config}: model_type {told.get('model_type')!r} is not counted, only llama is")
    return Shape(
        vocab=told["vocab_size"],
        hidden=told["hidden_size"],
        layers=told["num_hidden_layers"],
        heads=told["num_attention_heads"],
        kv_heads=told.get("num_key_value_heads") or told["num_attention_heads"],
        intermediate=told["intermediate_size"],
        tied=told.get("tie_word_embeddings", False),
    )
