"""The published benchmarks from the Hugging Face hub, or from copies of its repositories in a folder."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, cast

from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Benchmarks, Workspace
from cluster_bench.benchmarks.published import PUBLISHED, Row, refuse_names
from cluster_bench.benchmarks.rows import check, content, digest, refuse_changed, shipped

log = logging.getLogger(__name__)


@dataclass(frozen=True, config=STRICT)
class HubBenchmarks:
    """Fetches the items of each benchmark into `<name>.jsonl`; only this stage needs a network.

    ValueError, one line, for a revision that is missing and for what cannot be had or is not the published
    number of items.
    """

    names: tuple[str, ...]
    revision: dict[str, str]  # of each: a commit, or a branch, which moves
    sha256: dict[str, str] = field(default_factory=dict)  # of the items, where they are pinned

    def __post_init__(self) -> None:
        refuse_names(self.names, self.revision, self.sha256)
        refuse_unreleased(self.names, self.revision)
        for name in ("revision", "sha256"):  # of other benchmarks it decides nothing, so it is not addressed
            given: Mapping[str, str] = getattr(self, name)
            object.__setattr__(self, name, {one: given[one] for one in self.names if one in given})

    def __call__(self, workspace: Workspace) -> Benchmarks:
        items: dict[str, int] = {}
        found: dict[str, str] = {}
        for name in self.names:
            rows = published_rows(name, self.revision.get(name, ""))
            items[name], found[name] = len(rows), digest(content(rows))
            refuse_changed(name, self.sha256.get(name, ""), found[name], PUBLISHED[name].repo)
            (workspace.folder / f"{name}.jsonl").write_bytes(content(rows))
            log.info("benchmarks: %s, %d items, sha256 %s", name, items[name], found[name])
        return Benchmarks(workspace.folder, items, found)


def refuse_unreleased(names: Sequence[str], revision: Mapping[str, str]) -> None:
    """ValueError for a benchmark on the hub without a revision."""
    for name in names:
        repo = PUBLISHED[name].repo
        if repo and not revision.get(name):
            raise ValueError(f"revision.{name}: missing; give a commit of {repo}, or main for its latest")


def published_rows(name: str, revision: str, copies: Path | None = None) -> list[Row]:
    """The items of a benchmark, checked: as many as were published.

    From the hub at `revision`, or from a copy of the repository at `copies/<owner>/<name>`, as
    `hf download --repo-type dataset --local-dir` makes it.
    """
    published = PUBLISHED[name]
    if not published.repo:
        return shipped()
    rows: list[Row] = []
    for config in published.configs:
        place = str(copies / published.repo) if copies else published.repo
        rows += _load(name, place, config, "" if copies else revision)
    return as_published(name, rows, published.repo)


def as_published(name: str, rows: list[Row], where: str) -> list[Row]:
    """Those of the rows that are scored, checked: as many as were published."""
    published = PUBLISHED[name]
    try:
        rows = published.scored(rows)
    except KeyError as error:
        raise ValueError(f"{where}: a row has no column {error}; {name} needs it") from None
    check(name, rows, f"{where}, row")
    if len(rows) != published.items:
        raise ValueError(
            f"{where}: {len(rows)} items for {name}, where {published.items} were published: "
            "another version or half a file; fetch it whole, at the revision you want"
        )
    return rows


def commit(name: str, revision: str) -> str:
    """The commit that a branch of the benchmark's repository is at."""
    repo = PUBLISHED[name].repo
    try:
        from huggingface_hub import HfApi

        return str(HfApi().dataset_info(repo, revision=revision).sha)
    except Exception as error:  # of the hub, of its client and of the network, which have no common class
        raise unreachable(name, revision, error) from error


def _load(name: str, place: str, config: str | None, revision: str) -> list[Row]:
    try:
        import datasets

        load = cast("Any", datasets).load_dataset
        at: dict[str, str] = {"revision": revision} if revision else {}
        return [dict(row) for row in load(place, config, split=PUBLISHED[name].split, **at)]
    except Exception as error:  # as in `commit`
        raise unreachable(name, revision or place, error) from error


def unreachable(name: str, revision: str, error: Exception) -> ValueError:
    """One line that names the ways out."""
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return ValueError(
        f"benchmarks: {PUBLISHED[name].repo} at {revision} cannot be loaded for {name} ({reason}); run "
        "`make data` where there is a network, bring its folder here, and use scoring.data=FOLDER"
    )
