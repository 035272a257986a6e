"""The language model as a loop trains it: precision, attention, adapters; and as it is saved.

Nothing here depends on how many processes there are.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cluster_bench.training.packing import FLASH, attention_for
from cluster_bench.training.request import Request

DTYPES = {"float64": torch.float64, "pure_bfloat16": torch.bfloat16}  # of the weights; all others float32


def load_model(request: Request) -> nn.Module:
    """The base model in train mode, on the device."""
    from transformers import AutoModelForCausalLM

    loop, machine = request.loop, request.machine
    chosen = attention_for(machine.device, loop["dtype"]) if request.kind == "fast" else None
    if chosen == FLASH:
        os.environ.setdefault("FLASH_ATTENTION_DETERMINISTIC", "1")  # made again, the same bytes
    model: Any = AutoModelForCausalLM.from_pretrained(
        request.weights, dtype=DTYPES.get(loop["dtype"], torch.float32), attn_implementation=chosen
    )
    if loop.get("lora"):
        model = _with_adapters(model, loop)
    if machine.activation_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if machine.compile:
        for layer in model.get_decoder().layers:
            layer.compile(dynamic=True)  # one layer's code serves all; lengths change with every batch
    return (model if machine.sharded else model.to(machine.device)).train()


def save_model(model: Any, target: Path, base: Path, weights: dict[str, torch.Tensor] | None = None) -> None:
    """Write float32 weights, adapters merged, and the base model's tokenizer in the Hugging Face layout.

    `weights` are those of a model that is split over processes.
    """
    if weights is not None:
        model.save_pretrained(target, state_dict={name: w.float() for name, w in weights.items()})
    else:
        if hasattr(model, "merge_and_unload"):
            model = model.merge_and_unload()
        model.float().save_pretrained(target)
    for path in base.iterdir():
        if not (target / path.name).exists() and path.suffix in (".json", ".jinja", ".model", ".txt"):
            shutil.copy2(path, target / path.name)


def _with_adapters(model: Any, loop: dict[str, Any]) -> Any:
    """Freeze the weights and put adapters beside those named: the same on every process."""
    from peft import LoraConfig, get_peft_model

    lora = loop["lora"]
    torch.manual_seed(loop["seed"])
    config = LoraConfig(
        r=lora["rank"],
        lora_alpha=lora["alpha"],
        target_modules=list(lora["targets"]),
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model, config)
