"""Anyone's instruction set: a file with one JSON object a line."""

import hashlib
import json
from pathlib import Path

from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Corpus
from cluster_bench.corpora.columns import ALPACA, Columns, texts


@dataclass(frozen=True, config=STRICT)
class Jsonl:
    """The rows of the file in its order, blank lines skipped; a ValueError names the line that is wrong."""

    path: str
    columns: Columns = ALPACA
    rows: int | None = None  # the first so many; None: all
    sha256: str = ""  # of the file, filled in if empty: the address must change with the content

    def __post_init__(self) -> None:
        if self.rows is not None and self.rows < 1:
            raise ValueError(f"rows must be at least 1, or null for all, got {self.rows}")
        found = hashlib.sha256(self._read()).hexdigest()
        if self.sha256 not in ("", found):
            raise ValueError(f"sha256: {self.path} has {found}, not {self.sha256}")
        object.__setattr__(self, "sha256", found)

    def __call__(self) -> Corpus:
        data = self._read()
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise ValueError(f"{self.path} has changed since this run was set up; start it again")
        found: list[tuple[str, str]] = []
        names: set[str] = set()
        for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
            if line.strip() and (self.rows is None or len(found) < self.rows):
                where = f"{self.path}:{number}"
                row = parsed(line, where)
                found.append(texts(row, self.columns, where))
                names.update(row if isinstance(row, dict) else ())
        if not found:
            raise ValueError(f"{self.path} has no rows")
        if len(found) < (self.rows or 0):
            raise ValueError(f"{self.path} has {len(found)} rows, fewer than dataset.rows {self.rows}")
        if self.columns != ALPACA and self.columns[1] not in ("", *names):
            raise ValueError(f"{self.path}: no row has column {self.columns[1]!r}; write '' if there is none")
        return Corpus([prompt for prompt, _ in found], [answer for _, answer in found])

    def _read(self) -> bytes:
        try:
            return Path(self.path).read_bytes()
        except OSError as error:
            raise ValueError(f"path {self.path} cannot be read: {error.strerror}") from None


def parsed(line: bytes, where: str) -> object:
    """The value on one line. ValueError says where it is not JSON."""
    try:
        return json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: not UTF-8: {error.reason} at byte {error.start + 1}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: not JSON: {error.msg} at column {error.colno}") from None
