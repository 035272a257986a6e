"""Seconds, from FLOPs and bytes moved.

FLOPs are counted as PaLM (arXiv 2204.02311), torchtitan and llm-foundry count them: 6 for every parameter a
token is multiplied with, and 12 x layers x hidden x context for attention. A micro-batch takes the time of
its matrix products and of the weights' and gradients' way through memory, or that of the traffic between
GPUs, whichever is longer.
"""

from dataclasses import dataclass
from typing import Literal

from cluster_bench.cost.devices import Device
from cluster_bench.cost.shapes import Shape

CHECKPOINTING = 0.86  # what recomputing activations leaves of the throughput; fitted: llm-foundry, 7B
EAGER = 0.864  # what is left without torch.compile: torchtitan, Llama 3.1 8B, 8 H100, 5,762 / 6,667 tokens/s
LINK = 0.8  # share of NVLink's bandwidth that NCCL reaches; our allowance
LAUNCH_S = 0.9e-3  # of the CPU, per layer and generated token, of uncompiled transformers; our allowance

Precision = Literal["float32", "bfloat16"]
WIDTH = {"float32": 4.0, "bfloat16": 2.0}  # bytes
# Bytes per parameter and micro-batch. Replicated: weights read twice, their gradient written, then read, read
# and written as it is added up; float32 weights in bfloat16 products are cast first, their gradients after.
REPLICATED = {("float32", "float32"): 24, ("float32", "bfloat16"): 30, ("bfloat16", "bfloat16"): 12}
SHARDED = {"float32": 24, "bfloat16": 12}  # gathered and read twice, gradient written and read
OPTIMIZER = 28  # weight, gradient and two moments in float32: read all, write all but the gradient


@dataclass(frozen=True)
class Loop:
    """All of a training loop that decides its speed and its memory."""

    shape: Shape
    gpus: int
    sharded: bool  # weights, gradients and optimizer state split over the GPUs (FSDP), or on each of them
    masters: Precision = "float32"  # the weights that the optimizer changes, their gradients and its state
    products: Precision = "bfloat16"  # what the matrix products read
    optimizer: Literal["adamw", "adafactor"] = "adamw"
    checkpointing: Literal["none", "selective", "full"] = "none"  # of activations
    compiled: bool = False  # torch.compile, or kernels fused by hand
    head_tokens: int | None = None  # whose logits exist at once (chunked cross-entropy); None: all
    adapters: int = 0  # parameters of low-rank adapters, which alone are trained; 0: all are trained

    @property
    def trained(self) -> int:
        """Parameters that have a gradient."""
        return self.adapters or self.shape.parameters


def train_flops(shape: Shape, tokens: float, context: float) -> float:
    """FLOPs of forward and backward, nothing recomputed; each token in a row of `context` tokens."""
    return 1.0 * tokens * (6 * shape.multiplied + 12 * shape.layers * shape.hidden * context)


def train_seconds(
    loop: Loop, device: Device, tokens: float, micro_tokens: float, context: float, steps: int
) -> float:
    """Seconds of `steps` optimizer steps over `tokens` tokens, `micro_tokens` at a time on each GPU."""
    parameters, gpus = loop.shape.parameters, loop.gpus
    flops = train_flops(loop.shape, micro_tokens, context) * (2 / 3 if loop.adapters else 1)
    rate = _peak(device, loop.products) * (1 if loop.compiled else EAGER)
    rate *= 1 if loop.checkpointing == "none" else CHECKPOINTING
    moved = SHARDED[loop.products] if loop.sharded else REPLICATED[loop.masters, loop.products]
    moved = moved / 3 if loop.adapters else moved  # weights are only read
    micro = flops / rate + moved * parameters / device.bandwidth
    others = (gpus - 1) / gpus / (LINK * device.link)
    step = OPTIMIZER * loop.trained / (gpus if loop.sharded else 1) / device.bandwidth
    if loop.sharded:  # gathered for forward and for backward; gradients scattered in float32
        micro = max(micro, (2 * WIDTH[loop.products] * parameters + 4 * loop.trained) * others)
    else:
        step += 2 * WIDTH[loop.masters] * loop.trained * others
    return tokens / gpus / micro_tokens * micro + steps * step


def forward_seconds(
    shape: Shape, device: Device, tokens: float, batch_tokens: float, context: float, products: Precision
) -> float:
    """Seconds of uncompiled forward passes on one GPU."""
    flops = train_flops(shape, tokens, context) / 3
    read = tokens / batch_tokens * WIDTH[products] * shape.parameters / device.bandwidth
    return flops / (_peak(device, products) * EAGER) + read


def decode_seconds(shape: Shape, device: Device, batches: int, new_tokens: int) -> float:
    """Seconds to generate on one GPU: each step reads all weights, or waits for its kernels to start."""
    step = max(2 * shape.parameters / device.bandwidth, shape.layers * LAUNCH_S)
    return batches * new_tokens * step


def _peak(device: Device, products: Precision) -> float:
    return device.bfloat16 * device.efficiency if products == "bfloat16" else device.float32
