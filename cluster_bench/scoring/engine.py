"""lm-eval's Hugging Face model with what scoring needs changed. Imported inside calls only: it takes seconds.

* A response is encoded apart from its prompt, as in training, so no token spans the border.
* The same question asked by two benchmarks is generated once.
* Greedy decoding is a plain loop over the cache that ends a row at any special token.
* Questions cut at the left because the model's context is too short are kept, to be counted.
"""

import contextlib
import sys
from collections.abc import Callable, Generator
from typing import Any, cast

import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from cluster_bench.progress import progress

_HFLM = cast("Any", HFLM)  # its registry's decorator hides its type


class Engine(_HFLM):
    """One loaded model for all benchmarks, with our progress in place of lm-eval's."""

    def __init__(self, model: Any, tokenizer: Any, batch_size: int) -> None:
        super().__init__(model, tokenizer=tokenizer, batch_size=batch_size, add_bos_token=False)
        self._advance: Callable[[int], None] = lambda _: None
        self._stderr = sys.stderr
        self.cut: set[str] = set()
        self._encoded: dict[str, list[int]] = {}
        self._ends = torch.tensor(sorted(set(tokenizer.all_special_ids)), device=self.device)

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
        """One response per request, in order."""
        distinct = {request.args[0]: request for request in requests}
        for context, request in distinct.items():
            options = cast("tuple[str, dict[str, int]]", request.args)[1]
            self._context(context, options["max_gen_toks"])
        with self._progress("generating", len(distinct), "programs"):
            responses = super().generate_until(list(distinct.values()), disable_tqdm=True)
        of = dict(zip(distinct, responses, strict=True))
        return [of[request.args[0]] for request in requests]

    @torch.no_grad()
    def _model_generate(
        self, context: torch.Tensor, max_length: int, stop: list[str], **generation_kwargs: Any
    ) -> torch.Tensor:
        """Prompts padded at the left, then the most likely token after token: rows x at most `max_length`."""
        model = self.model
        mask = cast("torch.Tensor", generation_kwargs["attention_mask"])
        open_rows = torch.ones(len(context), dtype=torch.bool, device=context.device)
        whole, step, cache = context, context, None
        for _ in range(max_length - context.shape[1]):
            places = (mask.cumsum(1) - 1).clamp(min=0)[:, -step.shape[1] :]
            out = model(
                input_ids=step,
                attention_mask=mask,
                position_ids=places,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            cache = out.past_key_values
            token = out.logits[:, -1].float().argmax(-1)
            open_rows = open_rows & ~torch.isin(token, self._ends)
            token = torch.where(open_rows, token, self.tokenizer.pad_token_id)
            if not open_rows.any():
                break
            step = token[:, None]
            whole = torch.cat([whole, step], dim=1)
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        self._advance(len(context))
        return whole
