"""`python -m cluster_bench [group=option ...] [field=value ...]`: one experiment, a sweep, or a study.

python -m cluster_bench plan=true                       what would be made, and what is there already
python -m cluster_bench method=random seed=1            one experiment
python -m cluster_bench -m method=full,cluster_paper selection.ratio=0.5,0.75,1.0      a sweep
python -m cluster_bench study=main                      all the runs of one table, and the table
"""

import logging
import sys
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


@hydra.main(version_base="1.3", config_path="../conf", config_name="config")
def main(cfg: DictConfig) -> None:
    """One experiment, or one study, of a composed configuration."""
    hydra_cfg = HydraConfig.get()
    try:
        tree = studies.resolve(cfg, hydra_cfg.runtime.choices)
        if tree["study"]:
            _study(tree, list(hydra_cfg.overrides.task))
        else:
            _experiment(Cell({}, tree))
    except ValueError as error:
        _refuse(error)


def _experiment(cell: Cell) -> None:
    store = studies.store_of(cell.tree)
    print(plan(cell.run, store))
    if cell.tree["plan"]:
        return
    store.get(cell.run.scores)
    record = studies.record_of("", cell)
    _mirror(cell.tree, [record])
    from cluster_bench import report

    print(report.text([record]))


def _study(tree: dict[str, Any], overrides: list[str]) -> None:
    study = tree["study"]
    chosen = list(studies.cells(study, overrides))
    missing = [cell for cell in chosen if not studies.store_of(cell.tree).has(cell.run.scores)]
    if tree["plan"]:
        print(f"{len(chosen)} runs, {len(missing)} to make")
        for cell in chosen:
            print(f"{'make' if cell in missing else 'have'}  {cell.run.scores.key}  {cell.chosen}")
        return
    failed = studies.make(missing, study["jobs"])
    records = [studies.record_of(study["name"], cell) for cell in chosen if _is_made(cell)]
    if records:
        from cluster_bench import report

        command = f"python -m cluster_bench {' '.join(overrides)}"
        report.write(records, Path(study["results"]), study["title"], command)
        _mirror(tree, records)
        print(report.text(records))
    if failed:
        sys.exit("\n".join([f"{len(failed)} of {len(chosen)} runs failed:", *failed]))


def _is_made(cell: Cell) -> bool:
    """Whether a cell's scores are in the store."""
    return studies.store_of(cell.tree).has(cell.run.scores)


def _mirror(tree: dict[str, Any], records: list[Any]) -> None:
    from cluster_bench.tracking import TRACKERS

    tracker = build("tracking", TRACKERS, tree["tracking"])
    for record in records:
        tracker(record)


def _refuse(error: Exception) -> None:
    print(f"error: {str(error).strip()}", file=sys.stderr)
    sys.exit(2)


def command() -> None:
    """The console entry: what cannot be composed ends with one line and exit code 2."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    arguments = sys.argv[1:]
    if not any(argument.startswith("-") for argument in arguments):
        try:
            studies.compose(arguments)
        except (HydraException, OmegaConfBaseException) as error:
            _refuse(ValueError(" ".join(str(error).split("\n")[:1])))
    main()


if __name__ == "__main__":
    command()
