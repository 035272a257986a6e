"""The row-weighted loss, whose gradient over a global batch is that of the formula, whatever the micro-batch.

For a global batch of rows i with weights w_i and response losses l_i (mean cross-entropy over the row's
response tokens):

    L = (1 / rows in the batch) * sum_i w_i l_i

With K clusters, equally many rows of each in every batch, and w_i = K n_c / N, its gradient is
sum_c (n_c / N) * (mean gradient of cluster c's rows), which is method section 2.4 of the paper. Each
micro-batch contributes its rows' terms with the *global* normaliser; sums over micro-batches, ranks and
processes are then exact, and nothing depends on how rows are dealt.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from cluster_bench.artifacts import Array, Tokens


@dataclass(frozen=True)
class Batch:
    """Rows padded at the right; `at` and `row` point to the positions that predict response tokens."""

    ids: Int64[Tensor, "b l"]
    at: Int64[Tensor, " p"]  # in the flattened [b * l] positions
    row: Int64[Tensor, " p"]  # 0..b-1
    target: Int64[Tensor, " p"]
    share: Float[Tensor, " p"]  # what each token's loss counts in the batch's loss


def pad(
    tokens: Tokens,
    rows: Int64[Array, " b"],
    row_share: Float64[Array, " b"],
    by_token: bool,
    device: str,
) -> Batch:
    """Lay rows side by side.

    `row_share` is w_i over the global normaliser; `by_token` leaves out the 1 / T_i of the row's mean.
    """
    starts, ends, answers = tokens.starts[rows], tokens.starts[rows + 1], tokens.answers[rows]
    length = int((ends - starts).max())
    ids = np.zeros((len(rows), length), dtype=np.int64)
    at, row, target, share = [], [], [], []
    for i, (start, end, answer) in enumerate(zip(starts, ends, answers, strict=True)):
        ids[i, : end - start] = tokens.ids[start:end]
        count = int(end - answer)
        at.append(i * length + np.arange(answer - start - 1, end - start - 1))
        row.append(np.full(count, i))
        target.append(tokens.ids[answer:end])
        share.append(np.full(count, row_share[i] / (1 if by_token else count)))

    def joined(parts: list[Any], kind: Any) -> Tensor:
        return torch.from_numpy(np.concatenate(parts).astype(kind)).to(device)

    return Batch(
        torch.from_numpy(ids).to(device),
        joined(at, np.int64),
        joined(row, np.int64),
        joined(target, np.int64),
        joined(share, np.float64),
    )


def batch_loss(model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
    """The batch's share of the global loss.

    Rows are padded at the right and attention is causal, so no real position sees the padding and no mask is
    needed; only positions that predict a response token go through the output head.
    """
    decoder: Any = model.get_decoder()  # type: ignore[operator]
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    hidden = decoder(input_ids=batch.ids, use_cache=False).last_hidden_state
    logits = head(hidden.flatten(0, 1)[batch.at])
    kind = torch.float64 if logits.dtype == torch.float64 else torch.float32
    losses = nn.functional.cross_entropy(logits.to(kind), batch.target, reduction="none")
    return (losses * batch.share.to(kind)).sum()
