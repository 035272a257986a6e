"""What a finished run says of itself: one flat record, all that tables, figures and trackers read."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Record:
    """One run. Seconds are measured inside the stages; `modelled` ones say what nobody ran."""

    study: str
    method: str  # the option of `method=`: full, random, cluster_paper, base, ...
    model: str  # the option of `model=`
    dataset: str  # the option of `dataset=`
    seed: int
    overrides: dict[str, str]  # the cell of the sweep
    config: dict[str, Any]  # the resolved configuration
    addresses: dict[str, str]  # stage -> address
    ranks: int  # what the method saw
    processes: int  # what the machine had
    rows: int  # usable rows of the corpus
    kept_rows: int  # distinct rows trained on
    left_out_rows: int  # of the corpus, that cannot be trained on
    overflow_rows: int  # pushed out of their nearest cluster by the cap
    kept_overflow_rows: int  # of those, trained on: they look peripheral without being it
    corpus_tokens: int
    kept_tokens: int  # tokens of the rows trained on, one epoch; repeats count
    steps: int
    selection_seconds: float  # features + clusters + selection + allocation; 0 where no feature is used
    train_seconds: float
    modelled_train_seconds: float  # with as many processes as ranks; equals train_seconds if there were
    scores: dict[str, float]  # benchmark -> value in [0, 1]
    stderr: dict[str, float]
    items: dict[str, int]
    counts: dict[str, dict[str, int]]
    protocols: dict[str, str]
    versions: dict[str, str]
    machine: dict[str, Any]  # cpu, cores, memory, torch, threads
    contaminated: dict[str, int] = field(
        default_factory=dict
    )  # benchmark -> items that share 13 words in a row with a row trained on
    doubts: dict[str, list[str]] = field(
        default_factory=dict
    )  # benchmark -> why its score is doubted, samples
    noise: dict[str, dict[str, float | int]] = field(
        default_factory=dict
    )  # benchmark -> items, spread, changed
    failing: dict[str, list[int]] = field(
        default_factory=dict
    )  # benchmark -> items whose own reference solution fails: nothing passes
    vacuous: dict[str, list[int]] = field(
        default_factory=dict
    )  # benchmark -> items that a function passes which does nothing: everything does

    @property
    def micro(self) -> dict[str, float]:
        """Benchmark -> the share of all items passed, where the score is a macro average of subjects."""
        macro = [name for name, protocol in self.protocols.items() if "macro" in protocol.split()]
        return {name: self.counts[name]["passed"] / self.items[name] for name in macro}

    @property
    def total_seconds(self) -> float:
        """Selection and training; scoring is the same for every method and left out."""
        return self.selection_seconds + self.train_seconds
