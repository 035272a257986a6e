"""lm-eval's Hugging Face model with what scoring needs changed. Imported inside calls only: it takes seconds.

* A response is encoded apart from its prompt, as in training, so no token spans the border.
* The same question asked by two benchmarks is answered once; answers outlive a crash in a file of their own.
* Greedy decoding is ours (see generation.py) and ends a row at any special token.
* Questions cut at the left because the model's context is too short are kept, to be counted.
"""

import contextlib
import json
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, cast

import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from cluster_bench.progress import progress
from cluster_bench.scoring.generation import generate

_HFLM = cast("Any", HFLM)  # its registry's decorator hides its type


class Engine(_HFLM):
    """One loaded model for all benchmarks, with our progress in place of lm-eval's.

    `unfinished` is where answers wait for the rest: one JSON line each, the tokens asked and the tokens said.
    """

    def __init__(self, model: Any, tokenizer: Any, batch_size: int, unfinished: Path) -> None:
        super().__init__(model, tokenizer=tokenizer, batch_size=batch_size, add_bos_token=False)
        self._advance: Callable[[int], None] = lambda _: None
        self._stderr = sys.stderr
        self.cut: set[str] = set()
        self._encoded: dict[str, list[int]] = {}
        self._places, self._unfinished = batch_size, unfinished

    def _context(self, context: str, room: int) -> list[int]:
        """The tokens of a question, each encoded once; noted where they leave less than `room`."""
        if context not in self._encoded:
            self._encoded[context] = self.tok_encode(context, add_special_tokens=False)
        if len(self._encoded[context]) + room > self.max_length:
            self.cut.add(context)
        return self._encoded[context]

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        response = self.tok_encode(continuation, add_special_tokens=False)
        return self._context(context, len(response) - 1), response

    @contextlib.contextmanager
    def _progress(self, label: str, total: int, unit: str) -> Generator[None]:
        with contextlib.redirect_stderr(self._stderr), progress(label, total, unit) as self._advance:
            yield

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Log-likelihood of each response, and whether greedy decoding would give it."""
        return super().loglikelihood(requests, disable_tqdm=True)

    def _loglikelihood_tokens(
        self, requests: list[tuple[Any, list[int], list[int]]], disable_tqdm: bool = False, **kwargs: Any
    ) -> list[tuple[float, bool]]:
        rows = {(*context, *response[:-1]) for _, context, response in requests}
        with self._progress("options", len(rows), "rows"):
            return super()._loglikelihood_tokens(requests, disable_tqdm=True, **kwargs)

    def _model_call(self, inps: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        logits = super()._model_call(inps, **kwargs)
        self._advance(len(inps))
        return logits.float()

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """One response per request, in order: the most likely tokens up to a special one."""
        asked = [cast("tuple[str, dict[str, int]]", request.args) for request in requests]
        room = max(options["max_gen_toks"] for _, options in asked)
        questions = [tuple(self._context(text, room)[room - self.max_length :]) for text, _ in asked]
        said = _answers(self._unfinished)
        left = sorted(set(questions) - said.keys(), key=lambda ids: (-len(ids), ids))
        with self._progress("generating", len(left), "programs"), self._unfinished.open("a") as file:

            def done(number: int, answer: list[int]) -> None:
                said[left[number]] = answer
                print(json.dumps([left[number], answer]), file=file, flush=True)
                self._advance(1)

            generate(self.model, left, set(self.tokenizer.all_special_ids), (self._places, room), done)
        return [self.tok_decode(said[question]) for question in questions]


def _answers(file: Path) -> dict[tuple[int, ...], list[int]]:
    """What a try that was ended had answered; its last line may be cut short."""
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    file.write_text("".join(f"{line}\n" for line in lines))
    return {tuple(question): answer for question, answer in map(json.loads, lines)}
