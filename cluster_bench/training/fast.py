"""Fine-tuning as fast as the hardware allows, on the same plan and with the same losses as `paper.py`.

Rows lie end to end without padding, as many as a token budget takes; the logits never exist all at once;
gradients are summed once a step. What else makes it fast without changing what is learned (compilation,
recomputed activations) is the machine's.
"""

from typing import Literal

from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Allocation, Checkpoint, Model, Tokens, Workspace
from cluster_bench.training.paper import check_numbers, fine_tune


@dataclass(frozen=True, config=STRICT)
class Lora:
    """Low-rank adapters (arXiv 2106.09685) beside frozen weights; merged into them at the end."""

    rank: int
    alpha: float  # the adapters' product is scaled by alpha / rank
    targets: tuple[str, ...]  # modules of the model, by the end of their name

    def __post_init__(self) -> None:
        if self.rank < 1 or not self.targets:
            raise ValueError(f"lora: rank {self.rank}, {len(self.targets)} targets: each at least 1")


@dataclass(frozen=True, config=STRICT)
class FastLoop:
    """Tuning over an explicit plan by packed micro-batches; fields as in PaperLoop but for those remarked."""

    ranks: int
    epochs: int
    global_batch: int
    micro_tokens: int  # most tokens per forward pass, all of them real
    reduction: Literal["rows", "tokens"]
    optimizer: Literal["adamw", "adafactor"]
    lr: float
    schedule: Literal["linear", "cosine"]
    warmup: float
    weight_decay: float
    clip: float | None
    dtype: Literal["float32", "bfloat16", "pure_bfloat16", "float64"]  # pure: the weights themselves
    seed: int
    lora: Lora | None = None

    def __post_init__(self) -> None:
        check_numbers(self, "micro_tokens")
        if self.global_batch % self.ranks:
            raise ValueError(f"global_batch {self.global_batch} does not divide over ranks {self.ranks}")

    def __call__(self, tokens: Tokens, model: Model, allocation: Allocation, work: Workspace) -> Checkpoint:
        """Train from the base model.

        Raises ValueError for a row longer than `micro_tokens`, RuntimeError that names a rank that failed.
        """
        return fine_tune(self, "fast", tokens, model, allocation, work)
