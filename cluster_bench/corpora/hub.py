"""A published instruction set: from the Hugging Face hub, from its local cache, or from a folder."""

from typing import Any, cast

from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Corpus
from cluster_bench.corpora.columns import Columns, texts


@dataclass(frozen=True, config=STRICT)
class HubDataset:
    """The rows of one split in its order; ValueError, one line, if they cannot be had."""

    repo: str  # on the hub, or a folder
    revision: str  # a commit or branch on the hub; not looked at for a folder
    split: str
    columns: Columns
    rows: int | None = None  # the first so many; None: all

    def __post_init__(self) -> None:
        if self.rows is not None and self.rows < 1:
            raise ValueError(f"rows must be at least 1, or null for all, got {self.rows}")

    def __call__(self) -> Corpus:
        data = self._load()
        missing = [name for name in self.columns if name and name not in data.column_names]
        if missing:
            has = ", ".join(data.column_names)
            raise ValueError(f"dataset.columns: {self.repo} has no {', '.join(missing)}; it has {has}")
        if len(data) < (self.rows or 1):
            raise ValueError(f"dataset.rows: {self.repo} has {len(data)}, fewer than {self.rows or 1}")
        chosen = data.select(range(self.rows or len(data)))
        found = [texts(row, self.columns, f"{self.repo} row {n}") for n, row in enumerate(chosen)]
        return Corpus([prompt for prompt, _ in found], [answer for _, answer in found])

    def _load(self) -> Any:
        import datasets

        try:
            return cast("Any", datasets).load_dataset(self.repo, split=self.split, revision=self.revision)
        except (OSError, ValueError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ValueError(
                f"dataset.repo: {self.repo} at {self.revision}, split {self.split}, cannot be loaded "
                f"({reason}); fetch it where there is network with `hf download --repo-type dataset "
                f"{self.repo} --revision {self.revision}`, or use dataset=jsonl dataset.path=<file>"
            ) from error
