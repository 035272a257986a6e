"""`python -m cluster_bench [group=option ...] [field=value ...]`: one experiment, a sweep, or a study.

python -m cluster_bench plan=true                       what would be made, and what is there already
python -m cluster_bench method=random seed=1            one experiment
python -m cluster_bench -m method=full,cluster_paper selection.ratio=0.5,0.75,1.0      a sweep
python -m cluster_bench study=main                      all the runs of one table, and the table
python -m cluster_bench method=full launcher=slurm      an sbatch script; with -m, the jobs of a sweep
"""

import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster_bench.artifacts import Machine
from cluster_bench.cells import CONF, Cell, compose, remembered_cells, resolve, store_of, study_tree
from cluster_bench.config import build, machine
from cluster_bench.launch import LAUNCHERS
from cluster_bench.launch.meeting import lead
from cluster_bench.launch.nodes import Nodes
from cluster_bench.launch.slurm import Slurm, prepare_sweep
from cluster_bench.pipeline import plan
from cluster_bench.study import copy_items, make, make_run, record_of


def command() -> None:
    """The console entry. What is wrong with the input ends with one line and exit code 2.

    Hydra's own flags (`-m`, `--help`, `--cfg`) need Hydra's own main; without one, composing is enough, and
    for a study that was composed before not even that: Hydra is imported where it is used.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    arguments = sys.argv[1:]
    if {"-m", "--multirun"} & set(arguments) and "launcher=slurm" in arguments:
        _prepare_sweep()
    if any(argument.startswith("-") for argument in arguments):
        with_hydra()
        return
    is_study = any(argument.startswith("study=") for argument in arguments)
    try:
        if is_study:
            _start(study_tree(arguments), arguments)
        else:
            run(*compose(arguments), arguments)
    except Exception as error:
        from hydra.errors import HydraException
        from omegaconf.errors import OmegaConfBaseException

        if isinstance(error, HydraException | OmegaConfBaseException):
            _refuse(str(error).strip().splitlines()[0])
        if not isinstance(error, ValueError):
            raise
        _refuse(str(error).strip())


def with_hydra() -> None:
    """Hydra's own main: each of its jobs is a run."""
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    def task(cfg: Any) -> None:
        now = HydraConfig.get()
        try:
            run(cfg, dict(now.runtime.choices), list(now.overrides.task), now.mode is RunMode.MULTIRUN)
        except ValueError as error:
            _refuse(str(error).strip())

    hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(task)()


def run(cfg: Any, options: Mapping[str, str], overrides: Sequence[str], in_sweep: bool = False) -> None:
    """Make and show one experiment, or one study, of a composed configuration, where its launcher says."""
    from omegaconf.errors import MissingMandatoryValue

    on_gpus = cfg.hardware.device == "cuda" and not cfg.study
    if cfg.plan and on_gpus:
        _show_modelled(cfg)
    try:
        tree = resolve(cfg, options)
    except MissingMandatoryValue as error:
        if not (cfg.plan and on_gpus):
            raise
        print(f"no addresses without {error.full_key}")
        return
    _start(tree, overrides, in_sweep)


def _start(tree: dict[str, Any], overrides: Sequence[str], in_sweep: bool = False) -> None:
    launcher = build("launcher", LAUNCHERS, tree["launcher"])
    if isinstance(launcher, Nodes) and not tree["plan"]:
        _on_nodes(launcher, tree, overrides, in_sweep)
    elif isinstance(launcher, Slurm) and not tree["plan"] and not in_sweep:
        print(launcher.script(overrides, _largest(tree, overrides)), end="")
    else:
        _make(tree, overrides)


def _make(tree: dict[str, Any], overrides: Sequence[str]) -> None:
    if tree["study"]:
        _study(tree, overrides)
    else:
        _experiment(Cell({}, tree))


def _on_nodes(nodes: Nodes, tree: dict[str, Any], overrides: Sequence[str], in_sweep: bool) -> None:
    """Node 0 makes everything; the others join each training, and are done when there is nothing to make."""
    if in_sweep or (tree["study"] and tree["study"]["jobs"] > 1):
        raise ValueError("launcher: nodes makes one run after the other: no -m, and study.jobs=1")
    if nodes.node == 0:
        with lead(nodes):
            _make(tree, overrides)
    elif not all(cell.is_made for cell in _cells(tree, overrides)):
        from cluster_bench.training.follow import follow

        follow(nodes)


def _cells(tree: dict[str, Any], overrides: Sequence[str]) -> list[Cell]:
    return remembered_cells(tree, overrides) if tree["study"] else [Cell({}, tree)]


def _largest(tree: dict[str, Any], overrides: Sequence[str]) -> Machine:
    """The machine that serves every run."""
    return max((machine(cell.tree) for cell in _cells(tree, overrides)), key=lambda one: one.processes)


def _experiment(cell: Cell) -> None:
    store = store_of(cell.tree)
    print(plan(cell.run, store))
    if cell.tree["plan"]:
        return
    _refuse_what_cannot_fit([cell])
    make_run(cell.run, store)
    from cluster_bench.report import doubts

    records = [record_of("", cell)]
    doubts.refuse(records, cell.tree["confirmed"])
    _show(cell.tree, records)


def _study(tree: dict[str, Any], overrides: Sequence[str]) -> None:
    study = tree["study"]
    cells = remembered_cells(tree, overrides)
    missing = [cell for cell in cells if not cell.is_made]
    if tree["plan"]:
        print(f"{len(cells)} runs, {len(missing)} to make")
        for cell in cells:
            print(f"{'have' if cell.is_made else 'make'}  {cell.run.scores.key}  {cell.chosen}")
        return
    _refuse_what_cannot_fit(missing)
    failed = make(missing, study["jobs"])
    made = [cell for cell in cells if cell.is_made]
    records = [record_of(study["name"], cell) for cell in made]
    if records:
        from cluster_bench import report
        from cluster_bench.report import contamination, doubts

        doubts.refuse(records, tree["confirmed"])

        again = f"python -m cluster_bench {' '.join(overrides)}"
        report.write(records, Path(study["results"]), study["title"], again)
        contamination.write(made, Path(study["results"]))
        if study.get("items"):
            copy_items(made, Path(study["results"]))
        _show(tree, records)
    if failed:
        print("\n".join([f"error: {len(failed)} of {len(cells)} runs failed:", *failed]), file=sys.stderr)
        sys.exit(2 if all(isinstance(error, ValueError) for error in failed.values()) else 1)


def _show_modelled(cfg: Any) -> None:
    """What a run on GPUs would cost; its benchmarks need not be there yet."""
    from omegaconf import OmegaConf

    from cluster_bench.cost.plan import text

    tree: Any = OmegaConf.to_container(cfg, resolve=True)
    print(text(tree))


def _refuse_what_cannot_fit(cells: Sequence[Cell]) -> None:
    for cell in cells:
        on_gpus = cell.tree["hardware"]["device"] == "cuda"
        if on_gpus and not store_of(cell.tree).has(cell.run.checkpoint):
            from cluster_bench.cost.plan import refuse

            refuse(cell.tree)


def _show(tree: dict[str, Any], records: list[Any]) -> None:
    """Print the table, and mirror the runs where that is asked for."""
    from cluster_bench import report
    from cluster_bench.tracking import TRACKERS

    tracker = build("tracking", TRACKERS, tree["tracking"])
    for record in records:
        tracker(record)
    print(report.text(records))


def _prepare_sweep() -> None:
    try:
        prepare_sweep()
    except ValueError as error:
        _refuse(str(error))


def _refuse(line: str) -> None:
    print(f"error: {line}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    command()
