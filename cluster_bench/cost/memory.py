"""Bytes on each GPU, counted tensor by tensor.

What a layer keeps for its backward pass, per token: the inputs and outputs of its two norms, the three inputs
of the attention kernel and its output, and of the MLP the gate, the activated gate, the other factor and
their product. tests/test_cost.py holds the sum to torchtitan's measured peaks.
"""

from dataclasses import dataclass, fields

from cluster_bench.cost.compute import WIDTH, Loop, Precision
from cluster_bench.cost.devices import GIB, Device
from cluster_bench.cost.shapes import Shape

LOGITS = 2**25  # numbers that an output head holds at once: features/forward.py and training/loss.py
MARGIN = 0.95  # what CUDA, NCCL and a fragmented allocator leave of a GPU's memory; our allowance


@dataclass(frozen=True)
class Memory:
    """Bytes on each GPU."""

    weights: float
    gradients: float = 0.0
    optimizer: float = 0.0
    activations: float = 0.0
    logits: float = 0.0
    copies: float = 0.0  # of weights as the products read them: cast, or gathered from the other GPUs
    reduction: float = 0.0  # copy of all gradients that is summed over the GPUs, when activations are gone

    @property
    def total(self) -> float:
        """At the peak."""
        working = self.activations + self.logits + self.copies
        return self.weights + self.gradients + self.optimizer + max(working, self.reduction)

    def fit(self, device: Device) -> str:
        """`fits`, `tight` where the margin for CUDA and fragments is missing, or `no`."""
        if self.total > device.memory:
            return "no"
        return "fits" if self.total <= MARGIN * device.memory else "tight"

    def __str__(self) -> str:
        parts = {field.name: getattr(self, field.name) / GIB for field in fields(self)}
        return ", ".join(f"{name} {value:.1f}" for name, value in parts.items() if value >= 0.05)


def train_memory(loop: Loop, tokens: int) -> Memory:
    """The peak of a training step whose largest micro-batch has `tokens` tokens, all of them learned."""
    shape, parameters = loop.shape, loop.shape.parameters
    master, width = WIDTH[loop.masters], WIDTH[loop.products]
    shards = loop.gpus if loop.sharded else 1
    states = 2 * master * loop.trained if loop.optimizer == "adamw" else _factored(shape)
    if loop.sharded:  # two units gathered at a time, and the whole gradient of one in float32
        copies, reduction = (2 * width + 4) * max(shape.layer, shape.embedding), 0.0
    else:
        copies, reduction = (width * parameters if width < master else 0.0), master * loop.trained
    recomputed = _layer(loop) if loop.checkpointing == "full" else 0.0  # one layer at a time
    # Logits, their log-softmax in float32, and the gradients of both.
    head = min(tokens, loop.head_tokens or tokens) * shape.vocab * (width + 4 + 4 + 4)
    return Memory(
        weights=master * parameters / shards,
        gradients=master * loop.trained / shards,
        optimizer=states / shards,
        activations=tokens * (shape.layers * _kept(loop) + recomputed),
        logits=head,
        copies=copies,
        reduction=reduction,
    )


def forward_memory(shape: Shape, tokens: int, products: Precision) -> Memory:
    """The peak of a forward pass over `tokens` tokens, as the feature makes it."""
    width = WIDTH[products]
    layer = width * (2 * shape.hidden + 3 * shape.intermediate)
    last = 8 * shape.hidden  # the hidden states in float32, and their copy for the response tokens
    head = 4.0 * shape.embedding + 2 * 4 * LOGITS  # the output head in float32; logits, log-sum
    return Memory(width * shape.parameters, activations=tokens * (layer + last), logits=head)


def _kept(loop: Loop) -> float:
    """Bytes per token that each layer keeps until its backward pass."""
    shape, width = loop.shape, WIDTH[loop.products]
    if loop.checkpointing == "none":
        return _layer(loop)
    kept = _stream(loop) * shape.hidden
    if loop.checkpointing == "selective":  # torchtitan's: attention, and every other matrix product
        kept += width * (3 * shape.hidden + shape.kv + shape.intermediate)
    return kept


def _layer(loop: Loop) -> float:
    """Bytes per token that one layer keeps where nothing is recomputed."""
    shape, width, stream = loop.shape, WIDTH[loop.products], _stream(loop)
    # A norm keeps input and output; of a float32 stream also what it normalised, before that is cast.
    norms = 2 * shape.hidden * (stream + width + (stream if stream > width else 0))
    attention = width * (2 * shape.hidden + 2 * shape.kv)
    return norms + attention + (4 if shape.gated else 2) * width * shape.intermediate


def _stream(loop: Loop) -> float:
    """Bytes of a number between layers: autocast over replicated float32 weights leaves it in float32."""
    return WIDTH[loop.products] if loop.sharded else WIDTH[loop.masters]


def _factored(shape: Shape) -> float:
    """Adafactor's state, a row and a column of float32 a matrix, and its passing copies of the largest."""
    attention, mlp = 4 * 2 * shape.hidden, (2 + shape.gated) * (shape.hidden + shape.intermediate)
    factors = shape.layers * (attention + mlp) + 2 * (shape.vocab + shape.hidden)
    return 4.0 * (factors + 3 * shape.embedding)
