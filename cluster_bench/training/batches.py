"""A micro-batch as a model reads it: its rows side by side and padded, or end to end and not."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from cluster_bench.artifacts import Array, Tokens


@dataclass(frozen=True)
class Batch:
    """A micro-batch: rows side by side, padded at the right, or end to end in one sequence."""

    ids: Int64[Tensor, "b l"]
    lengths: list[int] | None  # of the rows that lie end to end; None: one row of `ids` each
    at: Int64[Tensor, " p"]  # the positions that predict response tokens, in the flattened [b * l]
    target: Int64[Tensor, " p"]
    share: Float[Tensor, " p"]  # what each token's loss counts in the batch's loss


def pad(
    tokens: Tokens, rows: Int64[Array, " b"], row_share: Float64[Array, " b"], by_token: bool, device: str
) -> Batch:
    """Lay rows side by side, each as long as the longest.

    `row_share` is w_i over the global normaliser; `by_token` leaves out the 1 / T_i of the row's mean.
    """
    longest = int(tokens.lengths[rows].max())
    ids, *rest = _lay(tokens, rows, row_share, by_token, np.arange(len(rows) + 1) * longest)
    return _batch(device, None, ids.reshape(len(rows), longest), *rest)


def pack(
    tokens: Tokens, rows: Int64[Array, " b"], row_share: Float64[Array, " b"], by_token: bool, device: str
) -> Batch:
    """Lay rows end to end, with nothing between or after them; shares as in `pad`."""
    lengths = tokens.lengths[rows]
    ids, *rest = _lay(tokens, rows, row_share, by_token, np.cumsum([0, *lengths]))
    return _batch(device, lengths.tolist(), ids[None], *rest)


def _lay(
    tokens: Tokens,
    rows: Int64[Array, " b"],
    row_share: Float64[Array, " b"],
    by_token: bool,
    offsets: Int64[Array, " bounds"],  # b + 1 of them: where each row begins, and the end
) -> tuple[Array, Array, Array, Array]:
    """The ids, and of each response token: the position before it, itself, its share."""
    starts, ends, answers = tokens.starts[rows], tokens.starts[rows + 1], tokens.answers[rows]
    ids = np.zeros(offsets[-1], np.int64)
    at, target, share = [], [], []
    for i, (start, end, answer) in enumerate(zip(starts, ends, answers, strict=True)):
        ids[offsets[i] : offsets[i] + end - start] = tokens.ids[start:end]
        at.append(offsets[i] + np.arange(answer - start - 1, end - start - 1))
        target.append(tokens.ids[answer:end].astype(np.int64))
        share.append(np.full(end - answer, row_share[i] / (1 if by_token else end - answer)))
    return ids, np.concatenate(at), np.concatenate(target), np.concatenate(share)


def _batch(device: str, lengths: list[int] | None, *arrays: Array) -> Batch:
    ids, at, target, share = (torch.from_numpy(array).to(device) for array in arrays)
    return Batch(ids, lengths, at, target, share)
