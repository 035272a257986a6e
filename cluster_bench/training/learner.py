"""What learns: the model, its optimizer, the one sum of gradients a step, and the weights at the end.

How weights, gradients and optimizer state lie over the processes is decided here and nowhere else.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn

from cluster_bench.training.batches import Batch
from cluster_bench.training.loss import batch_loss
from cluster_bench.training.model import load_model, save_model
from cluster_bench.training.request import Request

if TYPE_CHECKING:  # what only some trainings need is imported by these: it takes seconds
    from cluster_bench.training.sharding import LossOf


@dataclass(frozen=True)
class Learner:
    """A language model in training: each process holds all of it, or (`sharded`) its part."""

    model: nn.Module
    parameters: list[nn.Parameter]  # those that are trained
    optimizer: torch.optim.Optimizer
    autocast: torch.autocast
    sharded: "LossOf | None" = None

    def add_gradient(self, batch: Batch) -> Float[Tensor, ""]:
        """Add a micro-batch's gradient to what this process holds; return its share of the loss."""
        if self.sharded:
            scaled = self.sharded(batch)
            scaled.backward()
            return scaled.detach() / dist.get_world_size()
        with self.autocast:
            share = batch_loss(self.model, batch)
        share.backward()  # type: ignore[no-untyped-call]
        return share.detach()

    def sum_over_processes(self, beside: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Sum every gradient, and the numbers beside them, over the processes in one all-reduce."""
        if dist.get_world_size() == 1:
            return beside
        if self.sharded:  # the gradients were summed as they were made
            dist.all_reduce(beside)
            return beside
        grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.parameters]
        exact = torch.finfo(grads[0].dtype).bits >= 32  # else what is beside goes alone, lest it be rounded
        flat = torch.cat([g.flatten() for g in grads] + ([beside.to(grads[0].dtype)] if exact else []))
        dist.all_reduce(flat)
        offset = 0
        for parameter, grad in zip(self.parameters, grads, strict=True):
            parameter.grad = flat[offset : offset + grad.numel()].view_as(grad)
            offset += grad.numel()
        if not exact:
            dist.all_reduce(beside)
        return flat[-len(beside) :] if exact else beside

    def step(self, rate: float, clip: float | None) -> Float[Tensor, ""]:
        """Take an optimizer step with the summed gradients; return their norm before clipping."""
        norm = nn.utils.clip_grad_norm_(self.parameters, clip if clip is not None else float("inf"))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm.full_tensor() if self.sharded else norm  # type: ignore[operator]

    def state(self) -> dict[str, Any]:
        """The trained parameters and the optimizer's state, as torch.distributed.checkpoint takes them."""
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

        trained = StateDictOptions(ignore_frozen_params=True, strict=False)
        model, optimizer = get_state_dict(self.model, self.optimizer, options=trained)
        return {"model": model, "optimizer": optimizer}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_state_dict

        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
            options=StateDictOptions(ignore_frozen_params=True, strict=False),
        )

    def save(self, target: Path, base: Path) -> None:
        """Write the weights in the Hugging Face layout, beside `base`'s tokenizer; all processes call it."""
        weights = None
        if self.sharded:
            from cluster_bench.training.sharding import gathered

            weights = gathered(self.model)
        if dist.get_rank() == 0:
            save_model(self.model, target, base, weights)


def build_learner(request: Request) -> Learner:
    """Load the base model and give it an optimizer."""
    loop, device = request.loop, request.machine.device
    model = load_model(request)
    sharded = None
    if request.machine.sharded:
        from cluster_bench.training.sharding import shard

        sharded = shard(model, request.machine, loop["dtype"] == "bfloat16")
    parameters = [p for p in model.parameters() if p.requires_grad]
    low = torch.autocast(device, torch.bfloat16, enabled=loop["dtype"] == "bfloat16")
    return Learner(model, parameters, _optimizer(parameters, loop), low, sharded)


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
