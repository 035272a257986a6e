"""What `make data` runs: `python -m cluster_bench.benchmarks [--folder F] [--from F] [name ...]`."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from cluster_bench.benchmarks.fetch import Fetched, Source, fetch, table
from cluster_bench.benchmarks.published import PUBLISHED, refuse_names
from cluster_bench.progress import progress

PINS = Path(__file__).parents[2] / "conf/benchmarks/hub.yaml"


def command() -> None:
    """Fetch the benchmarks, print what they are; exit code 2 and a line for each that cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m cluster_bench.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(PUBLISHED)}; all without one")
    parser.add_argument("--folder", type=Path, default=Path("data/benchmarks"), help="where the files go")
    parser.add_argument(
        "--from", type=Path, dest="copies", help="a folder of files or of hub repositories, not the hub"
    )
    given = parser.parse_args()
    for library in ("HUB", "DATASETS"):  # one bar is enough
        os.environ.setdefault(f"HF_{library}_DISABLE_PROGRESS_BARS", "1")
    names: list[str] = given.names or list(PUBLISHED)
    found: dict[str, Fetched] = {}
    failed: list[str] = []
    try:
        refuse_names(names)
        sources = [_source(name, given.copies) for name in names]
    except ValueError as error:
        sys.exit(_refused([str(error)]))
    with progress("data", len(sources), "benchmarks") as advance:
        for source in sources:
            try:
                found[source.name] = fetch(source, given.folder)
            except ValueError as error:
                failed.append(str(error))
            advance(1)
    if found:
        print(table(found))
        print(f"Use them: scoring.data={given.folder}")
    if failed:
        sys.exit(_refused(failed))


def _source(name: str, copies: Path | None) -> Source:
    """As pinned in conf/benchmarks/hub.yaml."""
    from omegaconf import OmegaConf

    pinned: Any = OmegaConf.load(PINS)
    revision, sha256 = (str(pinned[group].get(name, "")) for group in ("revision", "sha256"))
    if PUBLISHED[name].repo and not (copies or revision):
        raise ValueError(f"revision.{name}: missing in {PINS}")
    return Source(name, revision, copies, sha256)


def _refused(lines: list[str]) -> int:
    print("\n".join(f"error: {line}" for line in lines), file=sys.stderr)
    return 2


if __name__ == "__main__":
    command()
