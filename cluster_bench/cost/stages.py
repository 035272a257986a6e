"""What each stage of the walk costs on a number of GPUs: seconds, bytes on disk, bytes on a GPU."""

import dataclasses
from dataclasses import dataclass

from cluster_bench.cost import disk
from cluster_bench.cost.compute import decode_seconds, forward_seconds, train_seconds
from cluster_bench.cost.devices import Device
from cluster_bench.cost.memory import Memory, forward_memory, train_memory
from cluster_bench.cost.setting import Setting

# Of one CPU core (measured here: SmolLM2's tokenizer; scikit-learn's k-means over 20,000 x 1,024 float32).
TOKENIZED = 1.2e5  # tokens/s
CLUSTERED = 3.3e9  # bytes/s of one pass over all rows
SORTED = 1e6  # rows/s of selection and allocation, files included; our allowance
QUESTION = 200  # tokens of a multiple-choice question; assumed


@dataclass(frozen=True)
class Cost:
    """Of one stage."""

    seconds: float | None  # None: not modelled
    disk: float  # bytes
    memory: Memory | None = None  # on the GPU, where one is used
    at_most: bool = False  # a bound, not an estimate


def costs(of: Setting, device: Device, gpus: int, sharded: bool) -> dict[str, Cost]:
    """Every stage, in the order of the walk. Features and scoring use one GPU, training all of them."""
    shape, loop = of.shape, dataclasses.replace(of.loop, gpus=gpus, sharded=sharded)
    kept = round(of.kept * of.rows)
    all_tokens = of.rows * of.mean
    memory = train_memory(loop, of.micro_longest)
    states = memory.optimizer * (gpus if sharded else 1)
    trained = train_seconds(loop, device, of.tokens, of.micro_tokens, of.mean, of.steps)
    return {
        "model": Cost(None, disk.model(shape)),
        "tokens": Cost(all_tokens / TOKENIZED, disk.tokens(of.rows, of.mean)),
        "features": _features(of, device),
        "clusters": Cost(
            of.passes * of.rows * 4.0 * shape.hidden / CLUSTERED, disk.clusters(of.rows), at_most=True
        ),
        "selection": Cost(of.rows / SORTED, disk.selection(kept)),
        "allocation": Cost(kept / SORTED, disk.allocation(kept)),
        "training": Cost(trained, disk.training(shape, states), memory, of.kept_at_most),
        "scoring": _scoring(of, device),
    }


def _features(of: Setting, device: Device) -> Cost:
    if not of.feature_tokens:
        return Cost(0.0, 0.0)
    seconds = forward_seconds(
        of.shape, device, of.rows * of.mean, float(of.feature_tokens), of.mean, of.feature_products
    )
    memory = forward_memory(of.shape, max(of.feature_tokens, of.longest), of.feature_products)
    return Cost(seconds, disk.features(of.rows, of.shape.hidden), memory)


def _scoring(of: Setting, device: Device) -> Cost:
    """Programs as long as they may be, questions in one forward pass each."""
    shape = of.shape
    asked = float(of.chosen * QUESTION)
    seconds = decode_seconds(shape, device, -(-of.generated // of.places), of.new_tokens)
    batch, context = float(of.places * QUESTION), float(QUESTION)
    seconds += forward_seconds(shape, device, asked, batch, context, "bfloat16")
    cache = 2.0 * 2 * shape.layers * shape.kv * of.places * (of.longest + of.new_tokens)
    memory = Memory(2.0 * shape.parameters, activations=cache)
    return Cost(seconds, 2e3 * (of.generated + of.chosen), memory, at_most=of.generated > 0)
