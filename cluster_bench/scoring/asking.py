"""Asking a model the items of its benchmarks through lm-eval, in one process or in several that share them.

Processes split the questions, not the benchmarks: each asks its share of every benchmark and keeps the
answers where all find them; then this one goes through all items and finds every answer there.
"""

import contextlib
import io
import logging
import os
import signal
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

from cluster_bench.artifacts import Machine
from cluster_bench.machine import die_with_parent, torch_threads
from cluster_bench.scoring.answers import Answers, folder_of
from cluster_bench.scoring.benchmarks import BENCHMARKS

TASKS = Path(__file__).with_name("tasks")
LOG = "asking_{}.log"  # in the workspace: what another process said


@dataclass(frozen=True)
class Questions:
    """What is asked of whom, and how: all that another process needs to ask a share of it."""

    weights: Path
    model: str  # the weights' `model_digest`
    folder: Path  # of the benchmarks' items
    benchmarks: tuple[str, ...]
    answers: Path  # where they are kept, of all models
    machine: Machine
    options: str
    prompts: str
    batch_size: int
    max_new_tokens: int
    dtype: str
    backend: str
    limit: int | dict[str, int] | None  # items of each benchmark and subject
    first: int | None = None  # of these items
    seed: int = 0

    @property
    def kept(self) -> Path:
        """Where the answers of this model that is asked in this way are kept."""
        way = (self.batch_size, self.max_new_tokens, self.dtype, self.backend, self.prompts, self.seed)
        by = [version(name) for name in (self.backend, "torch")]  # another version may say another thing
        return folder_of(self.answers, self.model, [*way, self.machine.device, *by])


@dataclass(frozen=True)
class Loaded:
    """A model and its tokenizer, ready to be asked."""

    model: Any
    tokenizer: Any


@dataclass(frozen=True)
class Asked:
    """lm-eval's samples of each benchmark, in the order of its items, and the contexts that were cut."""

    samples: dict[str, list[dict[str, Any]]]
    cut: set[str]


def load(questions: Questions, place: int = 0) -> Loaded:
    """Load the model for scoring; `place` is the GPU's number. ValueError where it cannot be asked so."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if questions.backend == "vllm" and (find_spec("vllm") is None or questions.machine.device != "cuda"):
        raise ValueError("scoring.backend: vllm needs a GPU and pip install vllm; or set it to transformers")
    with quiet():
        tokenizer = cast("Any", AutoTokenizer).from_pretrained(questions.weights)
        if questions.prompts == "chat" and not tokenizer.chat_template:
            raise ValueError(
                f"{questions.weights}: the tokenizer has no chat template; give one in model.template, "
                "or ask a base model with scoring.prompts=completion"
            )
        dtype = getattr(torch, questions.dtype)
        model = cast("Any", AutoModelForCausalLM).from_pretrained(questions.weights, dtype=dtype)
    context = model.config.max_position_embeddings
    if questions.max_new_tokens >= context:
        raise ValueError(
            f"scoring.max_new_tokens {questions.max_new_tokens} leaves no room for a prompt "
            f"in a context of {context}"
        )
    device = f"cuda:{place}" if questions.machine.device == "cuda" else questions.machine.device
    return Loaded(model.to(device).eval(), tokenizer)


def ask(
    questions: Questions, loaded: Loaded, said: Callable[[str, str], None], work: Path, processes: int = 1
) -> Asked:
    """Ask everything. `said` gets each generated program's prompt and text as soon as they are there.

    Raises RuntimeError that names a process that failed; what was answered by then is kept.
    """
    with Answers(questions.kept) as answers:
        if processes > 1:
            with _others(questions, work, processes) as wait:
                _evaluate(questions, loaded, answers, said, (0, processes))
                wait()
            answers.read()
        return _evaluate(questions, loaded, answers, said, (0, 1))


def _evaluate(
    questions: Questions,
    loaded: Loaded,
    answers: Answers,
    said: Callable[[str, str], None],
    share: tuple[int, int],
) -> Asked:
    from lm_eval.evaluator import evaluate
    from lm_eval.tasks import TaskManager

    from cluster_bench.scoring.engine import Engine, How

    chat = questions.prompts == "chat"
    about = {name: getattr(questions, name) for name in ("options", "prompts", "limit", "first")}
    metadata = cast("Any", {"folder": str(questions.folder), **about})
    manager = TaskManager(include_path=TASKS, include_defaults=False, metadata=metadata)
    with quiet(), torch_threads(questions.machine.threads):
        tasks = manager.load(list(questions.benchmarks))
        for name, task in tasks["tasks"].items():
            if task.OUTPUT_TYPE == "generate_until":
                until = [] if chat else list(BENCHMARKS[name].stops)
                how = {"max_gen_toks": questions.max_new_tokens, "until": until}
                task.set_config("generation_kwargs", how, update=True)
        way = How(questions.batch_size, said, chat, questions.seed, share, questions.backend)
        engine = Engine(loaded.model, loaded.tokenizer, answers, way)
        results = cast(
            "Any", evaluate(engine, cast("Any", tasks), bootstrap_iters=0, apply_chat_template=chat)
        )
    samples = {
        name: sorted(results["samples"][name], key=lambda sample: sample["doc_id"])
        for name in questions.benchmarks
    }
    return Asked(samples, engine.cut)


@contextlib.contextmanager
def _others(questions: Questions, work: Path, processes: int) -> Generator[Callable[[], None]]:
    """Let all other processes ask their shares; what is yielded waits until they have."""
    context = get_context("spawn")
    started: list[BaseProcess] = []
    try:
        for process in range(1, processes):
            arguments = (questions, process, processes, work / LOG.format(process), os.getpid())
            started.append(context.Process(target=_ask_share, args=arguments))
            started[-1].start()

        def wait() -> None:
            while any(one.exitcode is None for one in started):
                _refuse_failed(started, work)
                time.sleep(0.05)
            _refuse_failed(started, work)

        yield wait
    finally:
        for one in started:
            one.kill()
            one.join()


def _refuse_failed(started: Sequence[BaseProcess], work: Path) -> None:
    for process, one in enumerate(started, 1):
        if one.exitcode:
            said = (work / LOG.format(process)).read_text()[-2000:]
            raise RuntimeError(f"scoring: process {process} ended with code {one.exitcode}:\n{said}")


def _ask_share(questions: Questions, process: int, processes: int, log: Path, parent: int) -> None:
    """One process's share. What it finds goes into the kept answers, and nowhere else."""
    die_with_parent(parent, signal.SIGKILL)
    with log.open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    with Answers(questions.kept) as answers:
        _evaluate(questions, load(questions, process), answers, _unheard, (process, processes))


def _unheard(prompt: str, text: str) -> None:
    """Another process hears of it by what is kept."""


@contextlib.contextmanager
def quiet() -> Generator[None]:
    """Without lm-eval's own bars and hints; its errors are raised."""
    loggers = [logging.getLogger(name) for name in ("lm_eval", "transformers")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
