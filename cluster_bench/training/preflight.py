"""What can be known to be wrong before any process starts: one line each."""

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from cluster_bench.artifacts import Array, Machine, Model, Tokens
from cluster_bench.training.flops import read_config

log = logging.getLogger(__name__)

WITH_BF16 = {"avx512_bf16", "amx_bf16", "bf16"}  # flags of CPUs that multiply in it


def check(loop: Any, tokens: Tokens, model: Model, rows: Int64[Array, " e"], machine: Machine) -> None:
    """Raise ValueError for a row, model or device that cannot be trained so; warn of what is only slow."""
    vocabulary, largest = read_config(model.weights)["vocab_size"], int(tokens.ids.max())
    if largest >= vocabulary:
        raise ValueError(
            f"model: token {largest} is outside its vocabulary of {vocabulary}; "
            "model and tokenizer do not belong together"
        )
    if hasattr(loop, "micro_tokens"):
        _check_budget(loop.micro_tokens, tokens, rows)
        if machine.device == "cuda" and find_spec("flash_attn") is None:
            log.warning("training: flash-attn is not installed; attention runs row by row")
    if getattr(loop, "lora", None) is not None and find_spec("peft") is None:
        raise ValueError("training.lora: needs peft; pip install 'cluster-bench[lora]'")
    if machine.sharded and loop.optimizer == "adafactor":
        raise ValueError(
            "hardware.sharded: Adafactor's factored state cannot be split; set training.optimizer=adamw"
        )
    if machine.sharded and getattr(loop, "lora", None) is not None:
        raise ValueError("hardware.sharded: adapters are small; train them with hardware.sharded=false")
    if machine.offload and not machine.sharded:
        raise ValueError("hardware.offload: only with hardware.sharded=true")
    if "bfloat16" in loop.dtype:
        _check_bfloat16(machine.device)


def _check_budget(budget: int, tokens: Tokens, rows: Int64[Array, " e"]) -> None:
    lengths = tokens.lengths[rows]
    if lengths.max() > budget:
        row = int(tokens.rows[rows[np.argmax(lengths)]])
        raise ValueError(
            f"training.micro_tokens: row {row} has {lengths.max()} tokens, more than the budget of {budget}; "
            f"set it to {lengths.max()} or more, or lower tokens.max_length"
        )


def _check_bfloat16(device: str) -> None:
    if device == "cuda":
        import torch

        if not torch.cuda.is_bf16_supported(including_emulation=False):
            name = torch.cuda.get_device_name()
            raise ValueError(f"training.dtype: {name} has no bfloat16; set training.dtype=float32")
    elif not WITH_BF16 & set(Path("/proc/cpuinfo").read_text().split()):
        log.warning("training.dtype: this CPU multiplies bfloat16 in software; float32 is faster here")
