"""`python -m cluster_bench [group=option ...] [field=value ...]`: one experiment, a sweep, or a study.

python -m cluster_bench plan=true                       what would be made, and what is there already
python -m cluster_bench method=random seed=1            one experiment
python -m cluster_bench -m method=full,cluster_paper selection.ratio=0.5,0.75,1.0      a sweep
python -m cluster_bench study=main                      all the runs of one table, and the table
"""

import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from cluster_bench import study as studies
from cluster_bench.config import build
from cluster_bench.pipeline import plan
from cluster_bench.study import Cell


def command() -> None:
    """The console entry. What is wrong with the input ends with one line and exit code 2.

    Hydra's own flags (`-m`, `--help`, `--cfg`) need Hydra's own main; without one, composing is enough.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    arguments = sys.argv[1:]
    if any(argument.startswith("-") for argument in arguments):
        with_hydra()
        return
    try:
        is_study = any(argument.startswith("study=") for argument in arguments)
        composed = studies.compose_study(arguments) if is_study else studies.compose(arguments)
        run(*composed, arguments)
    except (HydraException, OmegaConfBaseException) as error:
        _refuse(str(error).strip().splitlines()[0])


@hydra.main(version_base="1.3", config_path="../conf", config_name="config")
def with_hydra(cfg: DictConfig) -> None:
    """One job of Hydra's."""
    now = HydraConfig.get()
    run(cfg, dict(now.runtime.choices), list(now.overrides.task))


def run(cfg: DictConfig, options: Mapping[str, str], overrides: Sequence[str]) -> None:
    """Make and show one experiment, or one study, of a composed configuration."""
    try:
        tree = studies.resolve(cfg, options)
        if tree["study"]:
            _study(tree, overrides)
        else:
            _experiment(Cell({}, tree))
    except ValueError as error:
        _refuse(str(error).strip())


def _experiment(cell: Cell) -> None:
    store = studies.store_of(cell.tree)
    print(plan(cell.run, store))
    if cell.tree["plan"]:
        return
    store.get(cell.run.scores)
    _show(cell.tree, [studies.record_of("", cell)])


def _study(tree: dict[str, Any], overrides: Sequence[str]) -> None:
    study = tree["study"]
    cells = studies.remembered_cells(tree, overrides)
    missing = [cell for cell in cells if not cell.is_made]
    if tree["plan"]:
        print(f"{len(cells)} runs, {len(missing)} to make")
        for cell in cells:
            print(f"{'have' if cell.is_made else 'make'}  {cell.run.scores.key}  {cell.chosen}")
        return
    failed = studies.make(missing, study["jobs"])
    records = [studies.record_of(study["name"], cell) for cell in cells if cell.is_made]
    if records:
        from cluster_bench import report

        again = f"python -m cluster_bench {' '.join(overrides)}"
        report.write(records, Path(study["results"]), study["title"], again)
        _show(tree, records)
    if failed:
        print("\n".join([f"error: {len(failed)} of {len(cells)} runs failed:", *failed]), file=sys.stderr)
        sys.exit(2 if all(isinstance(error, ValueError) for error in failed.values()) else 1)


def _show(tree: dict[str, Any], records: list[Any]) -> None:
    """Print the table, and mirror the runs where that is asked for."""
    from cluster_bench import report
    from cluster_bench.tracking import TRACKERS

    tracker = build("tracking", TRACKERS, tree["tracking"])
    for record in records:
        tracker(record)
    print(report.text(records))


def _refuse(line: str) -> None:
    print(f"error: {line}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    command()
