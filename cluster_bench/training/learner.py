"""What learns: the model, its optimizer, the one sum of gradients a step, and the weights at the end.

How weights, gradients and optimizer state lie over the processes is decided here and nowhere else.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn

from cluster_bench.training.batches import Batch
from cluster_bench.training.loss import batch_loss
from cluster_bench.training.model import load_model, save_model
from cluster_bench.training.request import Request


@dataclass(frozen=True)
class Learner:
    """A language model in training; every process holds all of it."""

    model: nn.Module
    parameters: list[nn.Parameter]  # those that are trained
    optimizer: torch.optim.Optimizer
    autocast: torch.autocast

    def add_gradient(self, batch: Batch) -> Float[Tensor, ""]:
        """Add a micro-batch's gradient to what this process holds; return its share of the loss."""
        with self.autocast:
            share = batch_loss(self.model, batch)
        share.backward()  # type: ignore[no-untyped-call]
        return share.detach()

    def sum_over_processes(self, loss: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """Sum every gradient, and the loss beside them, over the processes in one all-reduce."""
        if dist.get_world_size() == 1:
            return loss
        grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.parameters]
        exact = torch.finfo(grads[0].dtype).bits >= 32  # the loss goes alone where bfloat16 would round it
        beside = [loss.to(grads[0].dtype).reshape(1)] if exact else []
        flat = torch.cat([g.flatten() for g in grads] + beside)
        dist.all_reduce(flat)
        offset = 0
        for parameter, grad in zip(self.parameters, grads, strict=True):
            parameter.grad = flat[offset : offset + grad.numel()].view_as(grad)
            offset += grad.numel()
        if not exact:
            dist.all_reduce(loss)
        return flat[-1] if exact else loss

    def step(self, rate: float, clip: float | None) -> Float[Tensor, ""]:
        """Take an optimizer step with the summed gradients; return their norm before clipping."""
        norm = nn.utils.clip_grad_norm_(self.parameters, clip if clip is not None else float("inf"))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def save(self, target: Path, base: Path) -> None:
        """Write the weights in the Hugging Face layout, beside the tokenizer of `base`."""
        save_model(self.model, target, base)


def build_learner(request: Request) -> Learner:
    """Load the base model and give it an optimizer."""
    loop, device = request.loop, request.machine.device
    model = load_model(request)
    parameters = [p for p in model.parameters() if p.requires_grad]
    low = torch.autocast(device, torch.bfloat16, enabled=loop["dtype"] == "bfloat16")
    return Learner(model, parameters, _optimizer(parameters, loop), low)


def _optimizer(parameters: list[nn.Parameter], loop: dict[str, Any]) -> torch.optim.Optimizer:
    """AdamW, or Adafactor as the reference sets it: no relative step, no parameter scaling."""
    if loop["optimizer"] == "adamw":
        return torch.optim.AdamW(parameters, loop["lr"], weight_decay=loop["weight_decay"], fused=True)
    from transformers.optimization import Adafactor

    return Adafactor(
        parameters,
        lr=loop["lr"],
        weight_decay=loop["weight_decay"],
        scale_parameter=False,
        relative_step=False,
        warmup_init=False,
    )
