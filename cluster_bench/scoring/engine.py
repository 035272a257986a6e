"""lm-eval's Hugging Face model with what scoring needs changed. Imported inside calls only: it takes seconds.

* A response in the chat template is encoded apart from its prompt, as in training, so no token spans the
  border; in a plain text both are encoded as one, as lm-eval does.
* Every question is asked once, and never again once its answer is kept (see answers.py).
* The options of a question share its forward pass (see choices.py). Greedy decoding is ours (generation.py);
  it ends a row at any special token, and where a stop string begins.
* Questions cut at the left because the model's context is too short are kept, to be counted.
"""

import contextlib
import random
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from cluster_bench.progress import progress
from cluster_bench.scoring import generation, vllm
from cluster_bench.scoring.answers import Answers
from cluster_bench.scoring.choices import Question, log_likelihoods

_HFLM = cast("Any", HFLM)  # its registry's decorator hides its type
_BACKENDS = {"transformers": generation.generate, "vllm": vllm.generate}

Ids = tuple[int, ...]
TAIL = 24  # tokens at the end of an answer in which a stop string is looked for


@dataclass(frozen=True)
class How:
    """How questions are asked."""

    batch_size: int
    said: Callable[[str, str], None]  # gets each prompt and the program to it as soon as it is there
    apart: bool = True  # a response is encoded apart from its prompt
    seed: int = 0  # of the order of questions of one length: who shares a batch with whom
    share: tuple[int, int] = (0, 1)  # this process and how many there are: each asks its share
    backend: str = "transformers"  # what generates


class Engine(_HFLM):
    """One loaded model for all benchmarks, with our progress in place of lm-eval's."""

    def __init__(self, model: Any, tokenizer: Any, answers: Answers, how: How) -> None:
        super().__init__(model, tokenizer=tokenizer, batch_size=how.batch_size, add_bos_token=not how.apart)
        self.answers, self.how = answers, how
        self.cut: set[str] = set()
        self._stderr = sys.stderr
        self._encoded: dict[str, list[int]] = {}
        self._prompts: dict[str, str] = {}  # what the user says, by context

    def apply_chat_template(self, chat_history: list[dict[str, str]], *args: Any, **kwargs: Any) -> str:
        """The context of a prompt, remembered."""
        context = str(super().apply_chat_template(chat_history, *args, **kwargs))
        self._prompts[context] = chat_history[-1]["content"]
        return context

    def _context(self, context: str, room: int) -> list[int]:
        """The tokens of a question, cut at the left where they would leave less than `room`, and noted."""
        if context not in self._encoded:
            plain = {"add_special_tokens": False} if self.how.apart else {}
            self._encoded[context] = self.tok_encode(context, **plain)
        if len(self._encoded[context]) + room > self.max_length:
            self.cut.add(context)
        return self._encoded[context][max(0, len(self._encoded[context]) + room - self.max_length) :]

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        if not self.how.apart:
            return super()._encode_pair(context, continuation)
        return [], self.tok_encode(continuation, add_special_tokens=False)

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Log-likelihood of each response, and whether greedy decoding would give it."""
        asked: dict[str, list[str]] = {}
        for request in requests:
            context, response = cast("tuple[str, str]", request.args)
            options = asked.setdefault(context, [])
            if response not in options:
                options.append(response)
        questions = {context: self._question(context, options) for context, options in asked.items()}
        self._ask_options(list(questions.values()))
        found: dict[tuple[str, str], tuple[float, bool]] = {}
        for context, options in asked.items():
            known = questions[context] in self.answers
            said = self.answers[questions[context]] if known else [(0.0, False)] * len(options)
            found |= {
                (context, option): (float(log), bool(greedy))
                for option, (log, greedy) in zip(options, said, strict=True)
            }
        return [found[cast("tuple[str, str]", request.args)] for request in requests]

    def _question(self, context: str, options: Sequence[str]) -> tuple[Ids, tuple[Ids, ...]]:
        encoded = tuple(tuple(self._encode_pair(context, option)[1]) for option in options)
        room = max(len(option) for option in encoded) - 1
        return tuple(self._context(context, room)), encoded

    def _ask_options(self, questions: Sequence[tuple[Ids, tuple[Ids, ...]]]) -> None:
        mine = self._mine(questions, lambda question: len(question[0]))
        left = [Question(*question) for question in mine if question not in self.answers]
        with self._progress("options", len(left), "questions") as advance:

            def done(number: int, said: list[tuple[float, bool]]) -> None:
                self.answers.keep((left[number].tokens, left[number].options), said)
                advance(1)

            log_likelihoods(self.model, left, self.how.batch_size, done)

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """One response per request, in order: the most likely tokens up to a special one or a stop string."""
        asked = [cast("tuple[str, dict[str, Any]]", request.args) for request in requests]
        room = max(options["max_gen_toks"] for _, options in asked)
        stops = sorted({stop for _, options in asked for stop in options["until"]})
        questions = [tuple(self._context(text, room)) for text, _ in asked]
        texts = {question: text for question, (text, _) in zip(questions, asked, strict=True)}
        left = [question for question in self._mine(list(texts), len) if question not in self.answers]
        for question, text in texts.items():
            if question in self.answers:
                self.how.said(self._prompts.get(text, text), self._text(question, stops))
        with self._progress("generating", len(left), "programs") as advance:

            def done(number: int, answer: list[int]) -> None:
                self.answers.keep(left[number], answer)
                text = texts[left[number]]
                self.how.said(self._prompts.get(text, text), self._text(left[number], stops))
                advance(1)

            def is_over(answer: list[int]) -> bool:
                tail = self.tok_decode(answer[-TAIL:])
                return any(stop in tail for stop in stops)

            ends = set(self.tokenizer.all_special_ids)
            limits = self.how.batch_size, room
            _BACKENDS[self.how.backend](self.model, left, ends, limits, done, is_over if stops else None)
        return [self._text(question, stops) for question in questions]

    def _text(self, question: Ids, stops: Sequence[str]) -> str:
        """The answer up to the first stop string; empty where another process has yet to ask."""
        text = self.tok_decode(self.answers[question]) if question in self.answers else ""
        return text[: min([text.find(stop) for stop in stops if stop in text], default=len(text))]

    def _mine(self, questions: Sequence[Any], length: Callable[[Any], int]) -> list[Any]:
        """This process's share, longest first, those of one length in an order of the seed's."""
        order = sorted(set(questions))
        random.Random(self.how.seed).shuffle(order)
        first, step = self.how.share
        return sorted(order, key=length, reverse=True)[first::step]

    @contextlib.contextmanager
    def _progress(self, label: str, total: int, unit: str) -> Generator[Callable[[int], None]]:
        with contextlib.redirect_stderr(self._stderr), progress(label, total, unit) as advance:
            yield advance
