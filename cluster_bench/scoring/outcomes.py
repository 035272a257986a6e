"""What became of each item: a record each, their counts, a warning where they look like a broken protocol."""

import json
import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster_bench.scoring.benchmarks import BENCHMARKS, Item
from cluster_bench.scoring.execution import Verdict
from cluster_bench.scoring.extraction import program

log = logging.getLogger(__name__)

SUSPICIOUS = 0.05  # share of unparsed responses from which three of them are shown

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
    return made | {"raw": raw, "extracted": extracted, "verdict": "unparsed"}


def count(name: str, records: list[Record]) -> dict[str, int]:
    """Items by verdict (those that this kind can have), and the questions that were cut to fit."""
    found = Counter(one["verdict"] for one in records)
    kinds = [*map(str, Verdict), "unparsed"] if BENCHMARKS[name].kind == "code" else ["passed", "wrong"]
    return {kind: found[kind] for kind in kinds} | {"prompt_cut": sum(one["prompt_cut"] for one in records)}


def doubt(name: str, value: float, counts: dict[str, int], records: list[Record]) -> None:
    """Show three responses where a score looks like a broken protocol rather than a weak model."""
    if BENCHMARKS[name].kind == "code" and (value == 0 or counts["unparsed"] > SUSPICIOUS * len(records)):
        doubtful = [r for r in records if r["verdict"] == "unparsed"] or records
        shown = " | ".join(repr(one["raw"][:200]) for one in doubtful[:3])
        log.warning("%s: %.3f, %d of %d unparsed: %s", name, value, counts["unparsed"], len(records), shown)


def write(file: Path, records: list[Record]) -> None:
    """One JSON object a line."""
    file.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
