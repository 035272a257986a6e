"""Weights, gradients and optimizer state split over the processes (FSDP2), for models that do not fit in one.

Each layer is gathered when it is needed and let go after; what lies around the layers (embedding, last norm,
output head) is gathered once per forward and backward pass. Every process reads the base model whole into
its host memory before it keeps its part.
"""

from typing import Any, cast

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

from cluster_bench.artifacts import Machine
from cluster_bench.training.batches import Batch
from cluster_bench.training.loss import batch_loss


class LossOf(nn.Module):
    """A model whose forward pass is the batch's share of the loss: what FSDP can gather and let go around."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> Float[Tensor, ""]:
        """The loss of `loss.py`, times the processes: FSDP means gradients where the formula sums them."""
        return batch_loss(self.model, batch) * dist.get_world_size()


def shard(model: nn.Module, machine: Machine, low: bool) -> LossOf:
    """Split a model over all processes; `low`: compute in bfloat16, sum gradients in float32."""
    mesh = init_device_mesh(machine.device, (dist.get_world_size(),))
    precision = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if low else MixedPrecisionPolicy()
    offload = CPUOffloadPolicy(pin_memory=machine.device == "cuda") if machine.offload else OffloadPolicy()
    whole = LossOf(model)
    decoder = cast("Any", model).get_decoder()
    for part in [*decoder.layers, whole]:
        fully_shard(part, mesh=mesh, mp_policy=precision, offload_policy=offload)
    return whole


def gathered(model: nn.Module) -> dict[str, Tensor]:
    """All weights, whole, in host memory of process 0; nothing on the others. All processes call this."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return cast("dict[str, Tensor]", get_model_state_dict(model, options=options))
