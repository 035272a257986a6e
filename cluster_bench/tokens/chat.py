"""Each row as one turn of the model's own chat: the templated prompt, the answer, the end of the turn.

Prompt and answer are encoded apart, so the border between them never falls inside a token.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Corpus, Model, Tokens
from cluster_bench.progress import progress

log = logging.getLogger(__name__)

SHOWN = 10  # rows left out that the log names; the artefact lists all
CHUNK = 1024  # rows encoded at once: keeps every core of a fast tokenizer busy, and the lists small


@dataclass(frozen=True, config=STRICT)
class ChatTokens:
    """Prompt and answer in the chat template of the model, cut at the right where they are too long.

    A row without an answer, or whose prompt leaves no room for any of it, is left out and listed; an answer
    cut short stays, ends early, and is counted in the log. ValueError without a template, or if no row stays.
    """

    max_length: int  # tokens of prompt and answer together

    def __post_init__(self) -> None:
        if self.max_length < 2:
            raise ValueError(
                f"max_length must be at least 2 (one token asked, one answered), got {self.max_length}"
            )

    def __call__(self, corpus: Corpus, model: Model) -> Tokens:
        if not len(corpus):
            raise ValueError("the corpus has no rows, so there is nothing to train on")
        tokenizer = load_tokenizer(model.weights)
        end = end_of_turn(tokenizer, model.weights)
        ids: list[np.ndarray[Any, np.dtype[np.int32]]] = []
        answers: list[int] = []  # tokens before the answer, in the row
        rows: list[int] = []
        left_out: list[str] = []
        cut = 0
        for row, prompt, answer in encoded(corpus, tokenizer):
            if not answer or len(prompt) >= self.max_length:
                left_out.append(f"row {row}: {self._why(prompt, answer)}")
                continue
            whole = [*prompt, *answer, end]
            cut += len(whole) > self.max_length
            ids.append(np.array(whole[: self.max_length], dtype=np.int32))
            answers.append(len(prompt))
            rows.append(row)
        if not rows:
            raise ValueError(f"all {len(corpus)} rows of the corpus are left out; {left_out[0]}")
        if left_out:
            log.warning("%d of %d rows are left out:", len(left_out), len(corpus))
            for line in left_out[:SHOWN]:
                log.warning("  %s", line)
        if cut:
            log.warning("%d of %d answers are cut short at max_length %d", cut, len(rows), self.max_length)
        starts = np.concatenate([[0], np.cumsum([len(row) for row in ids])]).astype(np.int64)
        first = starts[:-1] + np.array(answers, dtype=np.int64)
        return Tokens(np.concatenate(ids), starts, first, np.array(rows, dtype=np.int64), left_out)

    def _why(self, prompt: list[int], answer: list[int]) -> str:
        if not answer:
            return "the answer is empty"
        return f"max_length {self.max_length} leaves no room for an answer after {len(prompt)} prompt tokens"


def load_tokenizer(weights: Path) -> Any:
    """The tokenizer beside the weights. ValueError if it has no chat template."""
    from transformers import AutoTokenizer

    tokenizer: Any = cast("Any", AutoTokenizer).from_pretrained(weights)
    if not tokenizer.chat_template:
        raise ValueError(f"{weights}: the tokenizer has no chat template; give one in model.template")
    return tokenizer


def end_of_turn(tokenizer: Any, weights: Path) -> int:
    """The special token that closes an answer in the template, else the tokenizer's end of sequence."""
    turns = [{"role": "user", "content": "PROMPT"}, {"role": "assistant", "content": "ANSWER"}]
    after = tokenizer.apply_chat_template(turns, tokenize=False).rpartition("ANSWER")[2]
    special = set(tokenizer.all_special_ids)
    for token in tokenizer(after, add_special_tokens=False).input_ids:
        if token in special:
            return token
    if tokenizer.eos_token_id is None:
        raise ValueError(
            f"{weights}: neither the chat template nor the tokenizer says which token ends an answer"
        )
    return tokenizer.eos_token_id


def encoded(corpus: Corpus, tokenizer: Any) -> Iterator[tuple[int, list[int], list[int]]]:
    """Row, prompt tokens, answer tokens, in corpus order; a blank answer has none."""

    def batch(texts: Sequence[str]) -> list[list[int]]:
        return tokenizer(list(texts), add_special_tokens=False, verbose=False).input_ids

    with progress("tokens", len(corpus), "rows") as advance:
        for first in range(0, len(corpus), CHUNK):
            turns = [[{"role": "user", "content": text}] for text in corpus.prompts[first : first + CHUNK]]
            prompts = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
            answers = [text if text.strip() else "" for text in corpus.answers[first : first + CHUNK]]
            for n, (prompt, answer) in enumerate(zip(batch(prompts), batch(answers), strict=True)):
                yield first + n, prompt, answer if answers[n] else []
            advance(len(turns))
