"""What became of each item: a record each, their counts, a doubt where they look like a broken protocol."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster_bench.scoring.benchmarks import BENCHMARKS, Item
from cluster_bench.scoring.execution import Verdict
from cluster_bench.scoring.extraction import program

SUSPICIOUS = 0.05  # share of unparsed responses above which a score is doubted
SHOWN = 3  # samples of a doubted score

Record = dict[str, Any]


def record(sample: dict[str, Any], item: Item, cut: set[str], special: Sequence[str]) -> Record:
    """The record of an lm-eval sample; a program has no verdict yet. `cut`: the prompts that did not fit."""
    made: Record = {"item": sample["doc_id"], "prompt_cut": sample["arguments"][0][0] in cut}
    if item.choices:
        scores = [float(score) for score, _ in sample["filtered_resps"]]
        chosen = max(range(len(scores)), key=scores.__getitem__)
        made |= {"raw": scores, "chosen": chosen, "answer": item.answer}
        return made | {"verdict": "passed" if chosen == item.answer else "wrong"}
    raw = str(sample["filtered_resps"][0])
    extracted = program(raw, item, special)
    return made | {"raw": raw, "extracted": extracted, "verdict": "unparsed", "detail": ""}


def count(name: str, records: list[Record]) -> dict[str, int]:
    """Items by verdict (those that this kind can have), and the questions that were cut to fit."""
    found = Counter(one["verdict"] for one in records)
    kinds = [*map(str, Verdict), "unparsed"] if BENCHMARKS[name].kind == "code" else ["passed", "wrong"]
    return {kind: found[kind] for kind in kinds} | {"prompt_cut": sum(one["prompt_cut"] for one in records)}


def doubts(name: str, records: list[Record], asked: Sequence[Item], error: float) -> list[str]:
    """Why a score may tell of a broken protocol rather than of the model, and three samples; else nothing.

    That is a share of unparsed programs above 5%, no program that passed, or choices less than two standard
    errors above what chance, or always the same answer, would give.
    """
    passed = sum(one["verdict"] == "passed" for one in records) / len(records)
    unparsed = [one for one in records if one["verdict"] == "unparsed"]
    if BENCHMARKS[name].kind == "choice":
        least = _without_reading(asked)
        why = f"{passed:.3f} is not above chance, {least:.3f}" if passed <= least + 2 * error else ""
    elif len(unparsed) > SUSPICIOUS * len(records):
        why = f"{len(unparsed)} of {len(records)} responses hold no program"
    else:
        why = "" if passed else "not one program passed"
    shown = [f"item {one['item']}: {_short(one)}" for one in (unparsed or records)[:SHOWN]]
    return [f"{name}: {why}", *shown] if why else []


def _without_reading(asked: Sequence[Item]) -> float:
    """The accuracy of choosing at random or, where all items have the same choices, always the best one."""
    random = sum(1 / len(item.choices) for item in asked) / len(asked)
    if len({item.choices for item in asked}) > 1:
        return random
    [(_, most)] = Counter(item.answer for item in asked).most_common(1)
    return max(random, most / len(asked))


def _short(one: Record) -> str:
    said = repr(one["raw"][:200]) if isinstance(one["raw"], str) else f"log-likelihoods {one['raw']}"
    return f"{one['verdict']}, {said}"


def write(file: Path, records: list[Record]) -> None:
    """A Parquet file, a row per item, for paired tests between models."""
    import pandas as pd

    pd.DataFrame(records).to_parquet(file, index=False)
