"""A plan for other people's trainers: a batch sampler that any PyTorch DataLoader takes.

    sampler = PlanSampler(".store/training.v1/<address>", rank=dist.get_rank(), micro_batch=4)
    loader = DataLoader(dataset, batch_sampler=sampler)

The dataset is the usable rows in their order (`Tokens`), or, with `rows=tokens.rows`, the corpus itself.
Give the loader to nothing that shards it (`accelerator.prepare`, Trainer's own loader): the plan already
says what each rank sees. In Hugging Face's Trainer override `get_train_dataloader` to return the loader.

The gradient of a step is that of sum_i share_i l_i over all rows that all ranks see in it, l_i a row's loss
and share_i its weight from `batches` or `weight_column`: sum it over micro-batches and ranks, and where
gradients are averaged over r ranks, as DistributedDataParallel does, multiply by r.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64

from cluster_bench.artifacts import Allocation, Array, load
from cluster_bench.training.plan import Plan, build_plan


@dataclass(frozen=True)
class MicroBatch:
    """What a rank trains on in one forward pass."""

    rows: list[int]
    weights: Float64[Array, " b"]  # of each row's loss in the step's: weight over rows of the global batch
    step: int
    last: bool  # the step's gradient is complete after it


class PlanSampler:
    """The micro-batches of one rank, as lists of positions in the dataset.

    Every step has the same number of micro-batches, `accumulation`, on every rank, so ranks that wait for
    each other at each of them never hang. All epochs of the plan are one pass, unless `set_epoch` chooses
    one of `epochs`. Raises ValueError when there is no such rank, epoch or step, or a step has too few rows
    for that.
    """

    def __init__(
        self,
        plan: Plan | str | Path,  # or the file, or the folder of a training that followed it
        rank: int,
        micro_batch: int | None = None,  # rows at most; None: a rank's rows of a step at once
        epochs: int = 1,  # of the plan, for set_epoch
        start_step: int = 0,  # optimizer steps already done, counted over all epochs
        rows: Int64[Array, " n"] | None = None,  # position in the dataset of each usable row
    ) -> None:
        self.plan = plan if isinstance(plan, Plan) else _read(Path(plan))
        if not 0 <= rank < self.plan.ranks:
            raise ValueError(f"rank {rank} is none of the plan's {self.plan.ranks}")
        if epochs < 1 or self.plan.steps % epochs:
            raise ValueError(f"the plan's {self.plan.steps} steps are not {epochs} equal epochs")
        if not 0 <= start_step <= self.plan.steps:
            raise ValueError(
                f"start_step {start_step} is not between 0 and the plan's {self.plan.steps} steps"
            )
        self.rank, self.epochs, self.start_step = rank, epochs, start_step
        self.accumulation = _accumulation(self.plan, micro_batch)
        self._rows = self.plan.rows if rows is None else rows[self.plan.rows]
        self._steps = range(start_step, self.plan.steps)

    def set_epoch(self, epoch: int) -> None:
        """Go through one epoch only, without the steps already done."""
        if not 0 <= epoch < self.epochs:
            raise ValueError(
                f"epoch {epoch} is none of the plan's {self.epochs}; tell PlanSampler its epochs"
            )
        each = self.plan.steps // self.epochs
        self._steps = range(max(self.start_step, epoch * each), (epoch + 1) * each)

    @property
    def batch_size(self) -> int:
        """Refused with ValueError: who asks, as `accelerator.prepare` does, is about to shard the plan."""
        raise ValueError(
            "PlanSampler: the plan says what each rank sees, so its loader must not be sharded; "
            "leave it out of accelerator.prepare, and in Trainer override get_train_dataloader"
        )

    def __len__(self) -> int:
        return len(self._steps) * self.accumulation

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.batches():
            yield batch.rows

    def batches(self) -> Iterator[MicroBatch]:
        """The same micro-batches with their weights, and which is the last of its step."""
        plan = self.plan
        for step in self._steps:
            at = step * plan.ranks + self.rank
            exposures = np.arange(plan.offsets[at], plan.offsets[at + 1])
            parts = np.array_split(exposures, self.accumulation)
            for i, part in enumerate(parts):
                weights = plan.weights[part] / len(plan.step_rows(step))
                yield MicroBatch(self._rows[part].tolist(), weights, step, i == len(parts) - 1)

    def weight_column(self, n: int) -> Float64[Array, " n"]:
        """One weight for each of n dataset rows, 0 where the plan has none: a column beside the data.

        It is the weight of `batches` where a row has the same one at all its exposures (plans by tokens, or
        of equal batches). Elsewhere it is what makes the steps' gradients the formula's on average: the
        row's weight in the plan over the mean rows of a global batch.
        """
        plan = self.plan
        counts = np.diff(plan.offsets[:: plan.ranks])
        share, mean = np.repeat(counts, counts), len(plan.rows) / plan.steps
        for values in (plan.weights / share, plan.weights / mean):
            column = np.zeros(n)
            column[self._rows] = values
            if np.allclose(column[self._rows], values, rtol=1e-9, atol=0):
                return column
        raise ValueError(f"plan {plan.hash}: a row has several weights; take those of batches()")


def stored_plan(allocation: str | Path, epochs: int, global_batch: int, seed: int) -> Plan:
    """The plan of a stored allocation, `.store/allocation.v1/<address>`, as our own loops build it."""
    return build_plan(load(Allocation, Path(allocation)), epochs, global_batch, seed)


def _read(path: Path) -> Plan:
    file = path / "plan.npz" if path.is_dir() else path
    if not file.is_file():
        raise ValueError(f"plan: {file} is not there; give a plan's file or the folder of its training")
    return Plan.load(file)


def _accumulation(plan: Plan, micro_batch: int | None) -> int:
    """Micro-batches of every step, or where a rank has too few rows for as many."""
    counts = np.diff(plan.offsets)
    if not len(counts):
        raise ValueError("plan: it has no steps")
    fewest, most = int(counts.min()), int(counts.max())
    accumulation = 1 if micro_batch is None else -(-most // micro_batch)
    if fewest < accumulation:
        step, rank = divmod(int(counts.argmin()), plan.ranks)
        out = f"micro_batch of {-(-most // fewest)} or more" if fewest else "another global_batch"
        raise ValueError(
            f"plan: rank {rank} has {fewest} rows at step {step}, fewer than {accumulation} micro-batches;"
            f" take {out}"
        )
    return accumulation
