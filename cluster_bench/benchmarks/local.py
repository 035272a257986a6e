"""The published benchmarks from a folder of JSONL files, such as `make data` fills."""

from dataclasses import field
from pathlib import Path

from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Benchmarks, Workspace
from cluster_bench.benchmarks.published import FILES, PUBLISHED, Row, mbpp_test, refuse_names
from cluster_bench.benchmarks.rows import check, content, digest, read, refuse_changed, shipped


@dataclass(frozen=True, config=STRICT)
class LocalBenchmarks:
    """Copies the items of each benchmark to `<name>.jsonl`, rows and columns as published.

    HumanEval's come from its package where the folder has none. ValueError names a benchmark that is
    unknown, a file that is missing or has changed, and the row that is wrong.
    """

    folder: str  # of the files in FILES
    names: tuple[str, ...]
    sha256: dict[str, str] = field(default_factory=dict)  # of each copy; filled in, so content is addressed

    def __post_init__(self) -> None:
        refuse_names(self.names, self.sha256)
        found: dict[str, str] = {}
        for name in self.names:
            found[name] = digest(self._content(name)[1])
            refuse_changed(name, self.sha256.get(name, ""), found[name], str(self._path(name)))
        object.__setattr__(self, "sha256", found)

    def __call__(self, workspace: Workspace) -> Benchmarks:
        items: dict[str, int] = {}
        for name in self.names:
            items[name], copy = self._content(name)
            if digest(copy) != self.sha256[name]:
                raise ValueError(f"{self._path(name)} has changed since this run was set up; start it again")
            (workspace.folder / f"{name}.jsonl").write_bytes(copy)
        return Benchmarks(workspace.folder, items, self.sha256)

    def _content(self, name: str) -> tuple[int, bytes]:
        """How many items there are, and the copy that is kept of them."""
        rows = self._rows(name)
        if name == "mbpp":
            rows = mbpp_test(rows)
        if not rows:
            raise ValueError(f"benchmarks.folder: {FILES[name]} has no rows for {name}")
        return len(rows), content(rows)

    def _rows(self, name: str) -> list[Row]:
        file = self._path(name)
        if name == "humaneval" and not file.is_file():
            return shipped()
        if not file.is_file():
            raise ValueError(
                f"benchmarks.folder: {file} is missing; `make data` fetches {PUBLISHED[name].repo}, "
                f"or take {name} out of scoring.benchmarks and benchmarks.names"
            )
        rows = read(file)
        check(name, rows, f"{file}, line")
        return rows

    def _path(self, name: str) -> Path:
        return Path(self.folder).expanduser() / FILES[name]
