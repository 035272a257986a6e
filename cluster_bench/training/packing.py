"""Rows end to end in one sequence: which ones share it, and how attention keeps them apart.

Nothing is padded, so every position that is computed is a token of the plan. Each row has positions of its
own from 0, and attention is block-diagonal: by flash attention's variable-length kernel where it is
installed, else row by row through torch's fused attention, which needs no mask and costs no more than the
rows' own squares (a mask over the whole sequence is 3.5 times slower at 2,300 tokens on a CPU).
"""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor, nn

from cluster_bench.artifacts import Array
from cluster_bench.training.batches import Batch

FLASH = "flash_attention_2"
ROW_BY_ROW = "row_by_row"  # the name that transformers knows our attention by


@dataclass(frozen=True, eq=False)
class Rows:
    """The tokens of each row of a pack; an object, as compiled code would be made anew for every list."""

    lengths: list[int]


def micro_batches(lengths: Int64[Array, " b"], loop: dict[str, Any]) -> list[Int64[Array, " part"]]:
    """Which of a rank's rows of a step share a forward pass: by their number, or by their tokens."""
    if "micro_tokens" in loop:
        return cut(lengths, loop["micro_tokens"])
    size = loop["micro_batch"]
    return [np.arange(start, min(start + size, len(lengths))) for start in range(0, len(lengths), size)]


def cut(lengths: Int64[Array, " b"], budget: int) -> list[Int64[Array, " part"]]:
    """Deal rows to micro-batches of at most `budget` tokens: the longest first, each to the first with room.

    First-fit decreasing needs at most 11/9 of the fewest possible, and 1. Raises ValueError for a row that
    is longer than the budget.

    >>> [part.tolist() for part in cut(np.array([3, 6, 4, 7]), 10)]
    [[0, 3], [1, 2]]
    """
    if len(lengths) and lengths.max() > budget:
        raise ValueError(f"a row of {lengths.max()} tokens is longer than the budget of {budget}")
    parts: list[list[int]] = []
    room: list[int] = []
    for row in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[row])
        at = next((i for i, free in enumerate(room) if free >= length), len(parts))
        if at == len(parts):
            parts.append([])
            room.append(budget)
        parts[at].append(row)
        room[at] -= length
    return [np.array(sorted(part)) for part in parts]


def attention_for(device: str, dtype: str) -> str:
    """The attention that packed rows get: flash where it is installed and can run, else row by row."""
    flash = device == "cuda" and "bfloat16" in dtype and find_spec("flash_attn") is not None
    if not flash:
        from transformers import AttentionInterface

        # The rows' number and lengths change with every micro-batch, so there is nothing to compile.
        AttentionInterface.register(ROW_BY_ROW, torch.compiler.disable(row_by_row))
    return FLASH if flash else ROW_BY_ROW


def places(batch: Batch, config: Any) -> dict[str, Any]:
    """What the decoder must be told about rows that lie end to end; nothing about others."""
    if batch.lengths is None:
        return {}
    device, lengths = batch.ids.device, batch.lengths
    positions = torch.cat([torch.arange(length) for length in lengths]).to(device)[None]
    if config._attn_implementation != FLASH:
        return {"position_ids": positions, "packed": Rows(lengths)}
    bounds = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32).to(device)
    longest = max(lengths)
    flash = {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds, "max_length_q": longest}
    return {"position_ids": positions, **flash, "max_length_k": longest}


def row_by_row(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    packed: Rows,
    sliding_window: int | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """Causal attention inside each row of [1, heads, tokens, d], one call of the fused kernel per row.

    Raises ValueError for a row longer than a sliding window, which that kernel does not know.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if sliding_window is not None and max(packed.lengths) > sliding_window:
        raise ValueError(
            f"training: a row of {max(packed.lengths)} tokens is longer than the model's sliding window of "
            f"{sliding_window}; lower tokens.max_length or install flash-attn"
        )
    sizes = packed.lengths
    rows = zip(query.split(sizes, 2), key.split(sizes, 2), value.split(sizes, 2), strict=True)
    return torch.cat([sdpa_attention_forward(module, q, k, v, None, **more)[0] for q, k, v in rows], 1), None
