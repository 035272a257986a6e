"""The arms of the modelled table: what is kept, what choosing it costs, in which loop it is trained.

The cost of a selection is a number of epochs over all rows in the fast loop, on the same GPUs.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from cluster_bench.cost.compute import Loop, train_seconds
from cluster_bench.cost.devices import Device
from cluster_bench.cost.memory import Memory, train_memory
from cluster_bench.cost.published import PUBLISHED
from cluster_bench.cost.setting import Setting
from cluster_bench.cost.shapes import Shape

KEPT = 0.31  # the paper's headline
PACKED = 8192  # tokens of a packed micro-batch
PYTHIA_70M = Shape(50304, 512, 6, 8, 8, 2048, gated=False)
HOW = {"replicated": (False, "none"), "sharded": (True, "none"), "sharded, checkpointing": (True, "full")}


@dataclass(frozen=True)
class Arm:
    """One way to choose rows."""

    method: str
    kept: float  # share of the rows; of their tokens too, since nothing is known of the lengths
    epochs: float  # what choosing costs


@dataclass(frozen=True)
class Trained:
    """A loop that fits, or the last one tried where none does."""

    name: str  # paper or fast
    how: str  # of HOW
    loop: Loop
    micro_tokens: float
    memory: Memory


def arms(dataset: str, shape: Shape) -> list[Arm]:
    """Full data, the paper's ratios, and a fixed share chosen by each method."""
    ratios = {run.method: run.kept for run in PUBLISHED if run.dataset == dataset and run.kept < 1}
    feature = 1 / 3  # one forward pass
    proxy = (3 + 3 / 3) * PYTHIA_70M.multiplied / shape.multiplied  # 3 epochs, and the losses after each
    chosen = {
        "random": 0.0,
        "CluSTER's feature": feature,
        "sketch of all layers": 2 / 3,  # forward, and backward without weight gradients
        "IFD": 2 / 3,  # two forward passes
        "S2L, Pythia-70M": proxy,
        "per-example gradients": 1.9,  # one at a time, with a dense projection; measured on a CPU
        "LESS": 9.0,  # 54 A100 hours for 270,679 rows (arXiv 2402.04333) over an epoch of a good loop
    }
    return [
        Arm("full", 1.0, 0.0),
        *(Arm(method, kept, feature) for method, kept in ratios.items() if kept != KEPT),
        *(Arm(_name(name, ratios), KEPT, epochs) for name, epochs in chosen.items()),
    ]


def _name(chosen: str, ratios: dict[str, float]) -> str:
    """The paper's own name where its ratio keeps exactly this share."""
    own = [method for method, kept in ratios.items() if kept == KEPT and chosen.startswith("CluSTER")]
    return own[0] if own else f"{KEPT:.0%}: {chosen}"


def loops(of: Setting, device: Device, gpus: int) -> Iterator[Trained]:
    """The paper's loop, a row at a time, and a fast one, packed and compiled; each where it fits."""
    paper = dataclasses.replace(of.loop, gpus=gpus)
    fast = dataclasses.replace(paper, compiled=True)
    for name, loop, mean, most in (
        ("paper", paper, of.micro_tokens, of.micro_longest),
        ("fast", fast, float(PACKED), PACKED),
    ):
        yield _first_that_fits(name, loop, mean, most, device)


def _first_that_fits(name: str, loop: Loop, mean: float, most: int, device: Device) -> Trained:
    tried = [
        Trained(name, how, tuned, mean, train_memory(tuned, most))
        for how, (sharded, checkpointing) in HOW.items()
        for tuned in [dataclasses.replace(loop, sharded=sharded, checkpointing=checkpointing)]
    ]
    return next((one for one in tried if one.memory.fit(device) == "fits"), tried[-1])


def hours(of: Setting, trained: Trained, device: Device, kept: float) -> float:
    """Training hours on a share of the rows."""
    some = dataclasses.replace(of, kept=kept)
    seconds = train_seconds(trained.loop, device, some.tokens, trained.micro_tokens, of.mean, some.steps)
    return seconds / 3600
