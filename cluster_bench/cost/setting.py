"""What of a composed configuration decides its costs, as plain numbers.

Rows and lengths of the paper's corpora come from their pages on the Hugging Face hub, as far as they tell:
bytes of text are given there, tokens are not, so a row's tokens are its bytes over an assumed number of bytes
per token. Where the store holds the tokens already, the plan counts those instead.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster_bench.cost.compute import Loop, Precision
from cluster_bench.cost.memory import LOGITS
from cluster_bench.cost.shapes import Shape, shape_of

CODE, PROSE = 3.3, 4.0  # bytes per token of Llama 2's tokenizer; assumed
TEMPLATE = 45  # tokens of the prompt around a row: conf/model


@dataclass(frozen=True)
class Text:
    """A published corpus."""

    rows: int
    row_bytes: float  # text of prompt and answer
    token_bytes: float
    balanced: float | None = None  # share that equal clusters at ratio 1 keep, K m / N, where it is published

    @property
    def mean(self) -> float:
        """Tokens per row."""
        return self.row_bytes / self.token_bytes + TEMPLATE


CORPORA: Mapping[str, Text] = {
    # Its file holds the seeds too; the text is that of the 28,880 rows in arjunguha/magicoder-micro.
    "ise-uiuc/Magicoder-OSS-Instruct-75K": Text(75_197, 49_921_513 / 28_880, CODE, balanced=0.79),
    # The whole JSON file.
    "nickrosh/Evol-Instruct-Code-80k-v1": Text(78_264, 121_454_735 / 78_264, CODE),
    # dataset_size of the card; the paper keeps 31% at ratio 0.5.
    "lavita/AlpaCare-MedInstruct-52k": Text(52_002, 64_721_846 / 52_002, PROSE, balanced=0.62),
}


@dataclass(frozen=True)
class Setting:
    """One run on GPUs."""

    shape: Shape
    loop: Loop
    rows: int
    mean: float  # tokens per row
    longest: int  # tokens of the longest row
    kept: float  # share of the rows that is trained on
    kept_at_most: bool  # where `kept` is only a bound
    epochs: int
    global_batch: int
    micro_tokens: float  # of one forward pass of training, on average
    micro_longest: int  # and at most
    feature_tokens: int  # of one forward pass of the feature; 0 without one
    feature_products: Precision
    passes: int  # of k-means over all rows, at most
    generated: int  # programs
    chosen: int  # questions answered by log-likelihood
    new_tokens: int
    places: int  # programs generated side by side

    @property
    def tokens(self) -> float:
        """Tokens trained on, over all epochs."""
        return self.epochs * self.kept * self.rows * self.mean

    @property
    def steps(self) -> int:
        """Optimizer steps."""
        return self.epochs * math.ceil(self.kept * self.rows / self.global_batch)


def setting(tree: Mapping[str, Any], lengths: Any = None) -> Setting:
    """Read a composed configuration; `lengths` are the tokens of each row, where they are known.

    Raises ValueError where the model's shape or the corpus is not known.
    """
    training, scoring, clusters = tree["training"], tree["scoring"], tree["clusters"]
    rows, mean, longest = _lengths(tree, lengths)
    kept, at_most = _kept(tree)
    shape = shape_of(tree["model"])
    packed = training.get("micro_tokens")  # of a loop that packs its rows
    asked = [ITEMS.get(name, (0, False)) for name in scoring["benchmarks"]]
    return Setting(
        shape=shape,
        loop=loop(tree, shape),
        rows=rows,
        mean=mean,
        longest=longest,
        kept=kept,
        kept_at_most=at_most,
        epochs=training["epochs"],
        global_batch=training["global_batch"],
        micro_tokens=float(packed or training["micro_batch"] * mean),
        micro_longest=packed or training["micro_batch"] * longest,
        feature_tokens=tree["features"].get("batch_tokens", 0),
        feature_products=tree["features"].get("dtype", "bfloat16"),
        passes=clusters.get("restarts", 0) * clusters.get("iterations", 0),
        generated=sum(count for count, is_code in asked if is_code),
        chosen=sum(count for count, is_code in asked if not is_code),
        new_tokens=scoring["max_new_tokens"],
        places=scoring["batch_size"],
    )


# Items of each benchmark, and whether a program is generated; HumanEval+ asks what HumanEval asks.
ITEMS = {
    "humaneval": (164, True),
    "humaneval_plus": (0, True),
    "mbpp": (500, True),
    "mbpp_plus": (378, True),
    "medmcqa": (4183, False),
    "medqa": (1273, False),
    "pubmedqa": (500, False),
    "mmlu_medical": (1089, False),
}


def loop(tree: Mapping[str, Any], shape: Shape) -> Loop:
    """The training loop of a configuration."""
    training, hardware = tree["training"], tree["hardware"]
    return Loop(
        shape=shape,
        gpus=hardware["processes"],
        sharded=hardware.get("sharded", False),
        masters="bfloat16" if training["dtype"] == "pure_bfloat16" else "float32",
        products="bfloat16" if "bfloat16" in training["dtype"] else "float32",
        optimizer=training["optimizer"],
        checkpointing="full" if hardware.get("activation_checkpointing") else "none",
        compiled=hardware.get("compile", False),
        head_tokens=LOGITS // shape.vocab,
        adapters=_adapters(training.get("lora"), shape),
    )


def _adapters(lora: Mapping[str, Any] | None, shape: Shape) -> int:
    """Parameters of low-rank adapters: a row and a column of each target, `rank` times, in every layer."""
    if not lora:
        return 0
    h, k, i = shape.hidden, shape.kv, shape.intermediate
    sides = {"k_proj": h + k, "v_proj": h + k, "gate_proj": h + i, "up_proj": h + i, "down_proj": h + i}
    return shape.layers * lora["rank"] * sum(sides.get(name, 2 * h) for name in lora["targets"])


def _lengths(tree: Mapping[str, Any], lengths: Any) -> tuple[int, float, int]:
    """Rows, their mean and their largest length."""
    if lengths is not None:
        return len(lengths), float(lengths.mean()), int(lengths.max())
    name = str(tree["dataset"].get("repo", tree["dataset"]["kind"]))
    if name not in CORPORA:
        raise ValueError(f"dataset: the lengths of {name} are not known before its tokens are made")
    text = CORPORA[name]
    return text.rows, text.mean, tree["tokens"]["max_length"]


def _kept(tree: Mapping[str, Any]) -> tuple[float, bool]:
    """Share of the rows that the selection keeps, and whether that is only a bound."""
    selection = tree["selection"]
    if selection["kind"] == "all":
        return 1.0, False
    if selection["kind"] == "oversampled":
        return float(tree["clusters"]["alpha"] or tree["clusters"]["k"]), True
    text = CORPORA.get(str(tree["dataset"].get("repo")))
    share = text.balanced if text else None
    return (share or 1.0) * (selection.get("ratio") or 1.0), share is None
