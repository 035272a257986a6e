"""Log-likelihoods of the options of a question, the question read once.

All options of a question lie behind it in one sequence: each begins at the position after the question, and
attends to the question and to itself alone. So one forward pass over a question and its options gives what
a forward pass per option would, and only the positions that say something about an option become logits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

Said = tuple[float, bool]  # log-likelihood of an option, and whether greedy decoding would give it


@dataclass(frozen=True)
class Question:
    """A question's tokens, and those of each of its options."""

    tokens: Sequence[int]
    options: Sequence[Sequence[int]]

    @cached_property
    def ids(self) -> list[int]:
        """The sequence that is read: nothing follows an option's last token, so that is left away."""
        return [*self.tokens, *(token for option in self.options for token in option[:-1])]

    @cached_property
    def starts(self) -> list[int]:
        """Where each option begins in `ids`."""
        at, found = len(self.tokens), list[int]()
        for option in self.options:
            found.append(at)
            at += len(option) - 1
        return found

    @property
    def positions(self) -> list[int]:
        """The position of each of `ids`: every option goes on from the question."""
        n = len(self.tokens)
        return [*range(n), *(n + i for option in self.options for i in range(len(option) - 1))]

    @property
    def seen(self) -> Bool[Tensor, " l l"]:
        """Which of `ids` each of them attends to."""
        seen = torch.ones(len(self.ids), len(self.ids), dtype=torch.bool).tril()
        for start, option in zip(self.starts, self.options, strict=True):
            seen[start : start + len(option) - 1, len(self.tokens) : start] = False
        return seen

    @property
    def told(self) -> list[int]:
        """Places in `ids` whose logits tell of an option's tokens, option after option."""
        last = len(self.tokens) - 1
        return [
            place
            for start, option in zip(self.starts, self.options, strict=True)
            for place in (last, *range(start, start + len(option) - 1))
        ]


@torch.inference_mode()
def log_likelihoods(
    model: Any, questions: Sequence[Question], rows: int, done: Callable[[int, list[Said]], None]
) -> None:
    """Ask every question, `rows` of them in a forward pass, in the order given.

    `done` gets the number of a question and what is said of its options.
    """
    for first in range(0, len(questions), rows):
        batch = questions[first : first + rows]
        hidden = _read(model, batch)
        for number, question in enumerate(batch):
            logits = model.get_output_embeddings()(hidden[number, question.told]).float()
            done(first + number, _of_options(logits.log_softmax(-1), question))


def _read(model: Any, batch: Sequence[Question]) -> Tensor:
    """Hidden states, rows x longest x hidden size."""
    longest = max(len(question.ids) for question in batch)
    ids = torch.zeros(len(batch), longest, dtype=torch.int64)
    positions = torch.zeros_like(ids)
    seen = torch.eye(longest, dtype=torch.bool).repeat(len(batch), 1, 1)  # padding sees itself: no empty rows
    for number, question in enumerate(batch):
        length = len(question.ids)
        ids[number, :length] = torch.tensor(question.ids)
        positions[number, :length] = torch.tensor(question.positions)
        seen[number, :length, :length] = question.seen
    inputs = {"input_ids": ids, "position_ids": positions, "attention_mask": seen[:, None]}
    if all(len(question.ids) == len(question.tokens) for question in batch):
        del inputs["attention_mask"]  # options of one token: plain causal attention, and faster
    on_device = {name: value.to(model.device) for name, value in inputs.items()}
    return model.get_decoder()(**on_device, use_cache=False).last_hidden_state


def _of_options(logs: Tensor, question: Question) -> list[Said]:
    found: list[Said] = []
    at = 0
    for option in question.options:
        own = logs[at : at + len(option)]
        at += len(option)
        said = torch.tensor(option, device=logs.device)
        greedy = bool((own.argmax(-1) == said).all())
        found.append((float(own.gather(1, said[:, None]).double().sum()), greedy))
    return found
