"""Greedy generation with continuous refilling: a row that ends gives its place to the next question at once.

A fixed number of places (the batch) is decoded together. Each place owns a stretch of a key/value cache that
is laid out once and written in place; its columns count from the row's own first token. A question is read
alone, without padding. So what a row says depends on neither its neighbours nor their number of tokens, and
answering the rest of a list after a crash gives what answering all of it would have given.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache


class PlacesCache(Cache):
    """Keys and values of all places, one pair of tensors per layer: places x heads x columns x head size."""

    def __init__(self, places: int, columns: int) -> None:
        super().__init__(layers=[])
        self._shape = places, columns
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._place = torch.arange(places)
        self._column = torch.zeros(places, dtype=torch.int64)
        self._seen = 0

    def read(self, place: int, prompt: DynamicCache) -> None:
        """Put a question, read alone, into a place."""
        for number, layer in enumerate(cast("list[Any]", prompt.layers)):
            keys, values = layer.keys, layer.values
            if number == len(self._keys):
                places, columns = self._shape
                shape = (places, keys.shape[1], columns, keys.shape[3])
                self._keys.append(keys.new_zeros(shape))
                self._values.append(values.new_zeros(shape))
                self._place = self._place.to(keys.device)
            self._keys[number][place, :, : keys.shape[2]] = keys[0]
            self._values[number][place, :, : values.shape[2]] = values[0]

    def next_columns(self, column: Int64[Tensor, " places"], seen: int) -> None:
        """Where the next token of each place goes; attention sees the first `seen` columns."""
        self._column = column
        self._seen = seen

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write one token per place; give the columns in use (called by the model's attention)."""
        keys, values = self._keys[layer_idx], self._values[layer_idx]
        keys[self._place, :, self._column] = key_states[:, :, 0]
        values[self._place, :, self._column] = value_states[:, :, 0]
        return keys[:, :, : self._seen], values[:, :, : self._seen]


@torch.inference_mode()
def generate(
    model: Any,
    questions: Sequence[Sequence[int]],
    ends: set[int],
    limits: tuple[int, int],
    done: Callable[[int, list[int]], None],
    is_over: Callable[[list[int]], bool] | None = None,
) -> None:
    """Answer every question with its most likely tokens, up to a token of `ends` (not kept).

    `limits`: places (rows decoded together) and the largest number of tokens per answer. `done` gets the
    number of a question and its answer as soon as that has ended. `is_over` may end an answer after any
    token.
    """
    places = _Places(model, questions, ends, limits, done)
    places.is_over = is_over
    for place in range(limits[0]):
        places.refill(place)
    while places.busy:
        places.say_one_more()


class _Places:
    """Who is answered at which place, and how far."""

    def __init__(
        self,
        model: Any,
        questions: Sequence[Sequence[int]],
        ends: set[int],
        limits: tuple[int, int],
        done: Callable[[int, list[int]], None],
    ) -> None:
        places, self._most = limits
        self._model, self._questions, self._ends, self._done = model, questions, ends, done
        self.is_over: Callable[[list[int]], bool] | None = None
        self._queue = iter(range(len(questions)))
        self._cache = PlacesCache(places, max(map(len, questions), default=0) + self._most)
        self._asked: list[int | None] = [None] * places
        self._said: list[list[int]] = [[] for _ in range(places)]
        self._column = [0] * places
        self._token = [0] * places

    @property
    def busy(self) -> bool:
        """Whether there is anything left to say."""
        return any(number is not None for number in self._asked)

    def refill(self, place: int) -> None:
        """Read the next question whose answer is not empty into a free place."""
        for number in self._queue:
            self._asked[place], self._said[place] = number, []
            prompt = DynamicCache()
            ids = torch.tensor([self._questions[number]], device=self._model.device)
            first = int(_most_likely(self._model, input_ids=ids, past_key_values=prompt))
            if self._goes_on(place, first):
                self._cache.read(place, prompt)
                self._column[place], self._token[place] = len(self._questions[number]), first
                return
        self._column[place] = self._token[place] = 0  # nobody's: decoded with the others, read by nobody

    def say_one_more(self) -> None:
        """One token at every place; those that have ended are given away."""
        at = torch.tensor(self._column, device=self._model.device)
        seen = max(self._column) + 1
        self._cache.next_columns(at, seen)
        hidden = torch.arange(seen, device=at.device) > at[:, None]
        mask = torch.zeros(hidden.shape, dtype=self._model.dtype, device=at.device)  # as every layer adds it
        chosen = _most_likely(
            self._model,
            input_ids=torch.tensor(self._token, device=at.device)[:, None],
            attention_mask=mask.masked_fill_(hidden, float("-inf"))[:, None, None],
            position_ids=at[:, None],
            past_key_values=self._cache,
        ).tolist()
        for place, new in enumerate(chosen):
            if self._asked[place] is None:
                continue
            if self._goes_on(place, new):
                self._column[place] += 1
                self._token[place] = new
            else:
                self.refill(place)

    def _goes_on(self, place: int, new: int) -> bool:
        """Note the new token of a place; whether its answer goes on after it."""
        if new not in self._ends:
            self._said[place].append(new)
            over = self.is_over is not None and self.is_over(self._said[place])
            if len(self._said[place]) < self._most and not over:
                return True
        self._done(cast("int", self._asked[place]), self._said[place])
        self._asked[place] = None
        return False


def _most_likely(model: Any, **inputs: Any) -> Int64[Tensor, " rows"]:
    logits: Float[Tensor, "rows 1 vocabulary"] = model(**inputs, use_cache=True, logits_to_keep=1).logits
    return logits[:, -1].float().argmax(-1)
