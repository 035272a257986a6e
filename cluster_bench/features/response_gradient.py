"""CluSTER's feature: what one forward pass tells of a row's gradient.

For the response tokens t = 1..T of a row, h_t the last hidden state where token t is predicted and p_t the
probability of that token, g = (1/T) sum_t (p_t - 1) h_t. Here (p_t - 1) h_t is the gradient of token t's
cross-entropy with respect to that token's row of the output head; g forgets which row it was.
"""

import logging
import shutil
import time
from dataclasses import dataclass as plain
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float, Float32, Int64
from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Array, Features, Model, Tokens, Workspace
from cluster_bench.machine import torch_threads
from cluster_bench.progress import progress

log = logging.getLogger(__name__)


@dataclass(frozen=True, config=STRICT)
class ResponseGradient:
    """g of every row, brought to unit length; a row whose g is zero or not finite gets norm 0 and vector 0.

    Rows are batched by length; each finished batch is kept in the work folder, so a killed run goes on
    where it was and gives the same bytes.
    """

    batch_tokens: int  # of one forward pass, padding included; a longer row goes alone
    dtype: Literal["float32", "bfloat16"]  # of the weights; the head and what follows it are float32 at least

    def __post_init__(self) -> None:
        if self.batch_tokens < 1:
            raise ValueError(f"batch_tokens must be at least 1, got {self.batch_tokens}")

    def __call__(self, tokens: Tokens, model: Model, work: Workspace) -> Features:
        batches = self.batches(tokens.lengths)
        shards = Shards(work.folder / "shards")
        missing = [n for n in range(len(batches)) if not shards.path(n).exists()]
        if missing:
            from cluster_bench.features import forward

            total = sum(len(batches[n]) for n in missing)
            with torch_threads(work.machine.threads), progress("features", total, "rows") as advance:
                net = forward.load(model.weights, self.dtype, work.machine.device)
                for n in missing:
                    rows = [tokens.ids[tokens.starts[i] : tokens.starts[i + 1]] for i in batches[n]]
                    prompts = (tokens.answers - tokens.starts[:-1])[batches[n]]
                    begin = time.perf_counter()
                    gradients = forward.response_gradients(net, rows, prompts)
                    shards.write(n, gradients, time.perf_counter() - begin)
                    advance(len(rows))
        features = gather(batches, shards)
        shutil.rmtree(shards.folder)
        return features

    def batches(self, lengths: Int64[Array, " n"]) -> list[Int64[Array, " _"]]:
        """Every row once, longest first: a batch too big for the memory fails at once, not at the end."""
        order = np.argsort(-lengths, kind="stable")
        batches: list[Int64[Array, " _"]] = []
        first = 0
        while first < len(order):
            size = max(1, self.batch_tokens // int(lengths[order[first]]))
            batches.append(order[first : first + size])
            first += size
        return batches


@plain(frozen=True)
class Shards:
    """Finished batches on disk: a file is complete, or it is not there."""

    folder: Path

    def path(self, n: int) -> Path:
        """Where batch n lies."""
        return self.folder / f"{n:06d}.npz"

    def write(self, n: int, gradients: Float[Array, "b d"], seconds: float) -> None:
        """Keep batch n."""
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.path(n).with_suffix(".partial")
        with partial.open("wb") as file:
            np.savez(file, gradients=gradients.astype(np.float32), seconds=np.float64(seconds))
        partial.replace(self.path(n))

    def read(self, n: int) -> tuple[Float32[Array, "b d"], float]:
        """The gradients of batch n, and the seconds they took."""
        with np.load(self.path(n), allow_pickle=False) as shard:
            return shard["gradients"], float(shard["seconds"])


def gather(batches: list[Int64[Array, " _"]], shards: Shards) -> Features:
    """All batches in row order, at unit length; norms in float64, as float32 is off over long vectors."""
    n = sum(len(rows) for rows in batches)
    values = np.zeros((n, shards.read(0)[0].shape[1]), dtype=np.float32)
    norms = np.zeros(n, dtype=np.float32)
    total = 0.0
    for number, rows in enumerate(batches):
        gradients, seconds = shards.read(number)
        norm = np.sqrt((gradients.astype(np.float64) ** 2).sum(axis=1))
        usable = np.isfinite(norm) & (norm.astype(np.float32) > 0)
        norms[rows[usable]] = norm[usable]
        values[rows[usable]] = gradients[usable] / norm[usable, None]
        total += seconds
    if flagged := int((norms == 0).sum()):
        log.warning(
            "%d of %d rows have no gradient (zero or not finite) and will not be clustered", flagged, n
        )
    return Features(values, norms, total)
