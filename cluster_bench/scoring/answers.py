"""What models have said, kept by weights, question and decoding, so that nothing is asked twice.

A folder per weights and decoding; in it a file of JSON lines for each process that asked: a digest of the
question's tokens, and the answer. Lines are only ever added: a scoring that was killed goes on from them, and
one with another limit, another time limit or other benchmarks finds what it shares with those before.
"""

import hashlib
import json
import uuid
from pathlib import Path
from types import TracebackType
from typing import IO, Any

SAID_BY = ("*.safetensors", "config.json", "tokenizer*", "special_tokens_map.json", "chat_template*")


class Answers:
    """The answers in one folder; use it as a context that closes the file it adds to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._said: dict[str, Any] = {}
        self._file: IO[str] | None = None
        self.read()

    def __enter__(self) -> "Answers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file:
            self._file.close()

    def read(self) -> None:
        """Read what all processes have written by now; a line that was cut short is none."""
        for file in sorted(self._folder.glob("*.jsonl")):
            for line in file.read_text().split("\n")[:-1]:
                question, answer = json.loads(line)
                self._said[question] = answer

    def __contains__(self, question: Any) -> bool:
        return _digest(question) in self._said

    def __getitem__(self, question: Any) -> Any:
        return self._said[_digest(question)]

    def keep(self, question: Any, answer: Any) -> None:
        """Add an answer, on disk as well."""
        if not self._file:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = (self._folder / f"{uuid.uuid4().hex}.jsonl").open("a")
        self._said[_digest(question)] = answer
        print(json.dumps([_digest(question), answer]), file=self._file, flush=True)


def model_digest(weights: Path) -> str:
    """What tells one model from another: its folder's files, in the Hugging Face layout, that decide what it
    says. Reads all of the weights."""
    files = sorted({path for pattern in SAID_BY for path in weights.glob(pattern)})
    model = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            model.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
    return model.hexdigest()[:16]


def folder_of(root: Path, model: str, decoding: list[Any]) -> Path:
    """Where the answers of a model (its `model_digest`) lie that is asked in this way."""
    return root / model / _digest(decoding)[:16]


def _digest(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:32]
