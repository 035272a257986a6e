"""The row-weighted loss, whose gradient over a global batch is that of the formula, whatever the micro-batch.

For a global batch of rows i with weights w_i and response losses l_i (mean cross-entropy over the row's
response tokens):

    L = (1 / rows in the batch) * sum_i w_i l_i

With K clusters, equally many rows of each in every batch, and w_i = K n_c / N, its gradient is
sum_c (n_c / N) * (mean gradient of cluster c's rows), which is method section 2.4 of the paper. Each
micro-batch contributes its rows' terms with the *global* normaliser; sums over micro-batches, ranks and
processes are then exact, and nothing depends on how rows are dealt.
"""

from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from cluster_bench.training.batches import Batch
from cluster_bench.training.packing import places

LOGITS = 2**25  # numbers held at once: 128 MiB in float32, about 1,000 positions of a vocabulary of 32,000


def batch_loss(model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
    """The batch's share of the global loss.

    Attention is causal, so no real position sees padding at the right and no mask is needed; rows end to end
    are kept apart by the attention that `packing.py` chose. Only positions that predict a response token go
    through the output head, and no more of them at a time than LOGITS allows: beyond it a part's logits are
    dropped and computed again when its gradient is due, which changes neither.
    """
    decoder: Any = model.get_decoder()  # type: ignore[operator]
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    kept_apart = places(batch, decoder.config)
    hidden = decoder(input_ids=batch.ids, use_cache=False, **kept_apart).last_hidden_state.flatten(0, 1)
    size = max(1, LOGITS // head.weight.shape[0])
    if len(batch.at) <= size:
        return _head_loss(head, hidden[batch.at], batch.target, batch.share)
    parts = zip(batch.at.split(size), batch.target.split(size), batch.share.split(size), strict=True)
    kept: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
    losses = [checkpoint(_head_loss, head, hidden[at], *rest, **kept) for at, *rest in parts]
    return torch.stack(losses).sum()


def _head_loss(
    head: nn.Module, hidden: Float[Tensor, "p h"], target: Int64[Tensor, " p"], share: Float[Tensor, " p"]
) -> Float[Tensor, ""]:
    logits = head(hidden)
    kind = torch.float64 if logits.dtype == torch.float64 else torch.float32
    losses = nn.functional.cross_entropy(logits.to(kind), target, reduction="none")
    return (losses * share.to(kind)).sum()
