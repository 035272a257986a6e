"""One forward pass over a batch of rows. Imports torch: import it inside a call."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int32, Int64
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from cluster_bench.artifacts import Array

LOGITS = 2**25  # logits held at once: 128 MiB in float32


def load(weights: Path, dtype: str, device: str) -> Any:
    """A causal language model, ready for evaluation. ValueError where its head is not a plain linear map."""
    logging.disable_progress_bar()  # ours says more
    net: Any = cast("Any", AutoModelForCausalLM).from_pretrained(weights, dtype=getattr(torch, dtype))
    for name in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
        if getattr(net.config, name, None) not in (None, 1.0):
            raise ValueError(
                f"{weights}: response_gradient needs logits that are head @ hidden, the model has {name}"
            )
    return net.to(device).eval()


@torch.inference_mode()
def response_gradients(
    net: Any, rows: Sequence[Int32[Array, " _"]], prompts: Int64[Array, " b"]
) -> Float[Array, "b d"]:
    """g = (1/T) sum_t (p_t - 1) h_t of each row, whose first `prompts` tokens are not learned (at least one).

    Rows are padded at the right and need no mask: attention is causal, so no token sees what comes after it.
    """
    assert (prompts > 0).all(), "the first response token needs a token before it"
    device = net.device
    length = max(len(row) for row in rows)
    padded = np.zeros((len(rows), length), dtype=np.int64)
    learned = np.zeros((len(rows), length), dtype=bool)  # at the position that predicts the token
    for n, row in enumerate(rows):
        padded[n, : len(row)] = row
        learned[n, prompts[n] - 1 : len(row) - 1] = True
    ids = torch.tensor(padded, device=device)
    mask = torch.tensor(learned, device=device)
    hidden: Tensor = net.base_model(input_ids=ids, use_cache=False).last_hidden_state
    hidden = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
    share = torch.zeros(
        ids.shape, dtype=hidden.dtype, device=device
    )  # (p_t - 1) / T, 0 where nothing is learned
    share[mask] = errors(hidden[mask], ids.roll(-1, dims=1)[mask], net.get_output_embeddings())
    share /= mask.sum(dim=1, keepdim=True)
    return torch.einsum("bl,bld->bd", share, hidden).cpu().numpy()


def errors(hidden: Float[Tensor, "r d"], true: Int64[Tensor, " r"], head: Any) -> Float[Tensor, " r"]:
    """p - 1 of the true token at each position, a few at a time; expm1 keeps the digits where p is near 1."""
    weight = head.weight.to(hidden.dtype)
    bias = None if head.bias is None else head.bias.to(hidden.dtype)
    parts: list[Tensor] = []
    size = max(1, LOGITS // len(weight))
    for first in range(0, len(hidden), size):
        logits = torch.nn.functional.linear(hidden[first : first + size], weight, bias)
        log_p = logits.gather(1, true[first : first + size, None])[:, 0] - logits.logsumexp(dim=1)
        parts.append(torch.expm1(log_p))
    return torch.cat(parts)
