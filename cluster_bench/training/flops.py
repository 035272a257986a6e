"""How much arithmetic a step is, and how much of it the GPUs could do: their quotient is the MFU.

FLOPs are counted as PaLM (arXiv 2204.02311) counts them: 6 for every parameter that a token is multiplied
with, and 12 x layers x hidden x row length for attention, each row on its own.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from cluster_bench.artifacts import Array, Model

PEAKS: Mapping[str, float] = {"A100": 312e12, "H100": 989e12, "H200": 989e12}
"""FLOP/s in dense bfloat16, by NVIDIA's data sheets of the SXM modules."""


def read_config(weights: Path) -> dict[str, Any]:
    """The `config.json` of a model."""
    config: dict[str, Any] = json.loads((weights / "config.json").read_text())
    return config


def row_flops(model: Model, lengths: Int64[Array, " n"], adapters: bool = False) -> Float64[Array, " n"]:
    """FLOPs of forward and backward of each row, nothing recomputed.

    With `adapters` the weights are frozen: 4 for each of them, as none has a gradient; the adapters' own
    are left out.
    """
    config = read_config(model.weights)
    looked_up = 0 if config.get("tie_word_embeddings") else config["vocab_size"] * config["hidden_size"]
    attention = 12.0 * config["num_hidden_layers"] * config["hidden_size"]
    products = 4.0 if adapters else 6.0
    return lengths * (products * (model.parameters - looked_up) + attention * lengths)


def peak_flops(device: str) -> float | None:
    """FLOP/s of one GPU of this machine, None where it is not known: then there is no MFU."""
    if device != "cuda":
        return None
    import torch

    name = torch.cuda.get_device_name()
    return next((peak for known, peak in PEAKS.items() if known in name), None)


def per_step(values: Float64[Array, " e"], offsets: Int64[Array, " bounds"]) -> Float64[Array, " s"]:
    """Sum what each exposure counts over the steps that begin and end at `offsets`."""
    return np.diff(np.concatenate([[0.0], np.cumsum(values)])[offsets])
