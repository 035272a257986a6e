"""What is to be run: configurations composed by Hydra, and a study's grids as cells, each a resolved one.

A cell is a choice of options and values; what is finished of it is found by address.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from cluster_bench.config import machine, structure
from cluster_bench.pipeline import Run, walk
from cluster_bench.store import Store

CONF = Path(__file__).parents[1] / "conf"
OPTIONS = "options"  # where a tree keeps which option of each group was chosen
# The overrides that are a study's own; the others are its cells'.
OF_THE_STUDY = ("study=", "study.", "confirmed=", "tracking=", "tracking.", "launcher=", "launcher.", "plan=")


@dataclass(frozen=True)
class Cell:
    """One run of a study: what was chosen, and the resolved configuration that came of it."""

    chosen: dict[str, str]
    tree: dict[str, Any]

    @cached_property
    def run(self) -> Run:
        """The artefacts of this cell. Raises ValueError where the configuration is wrong."""
        return walk(structure(self.tree))

    @property
    def is_made(self) -> bool:
        """Whether the scores are in the store."""
        return store_of(self.tree).has(self.run.scores)


def compose(overrides: Sequence[str]) -> tuple[Any, dict[str, str]]:
    """The configuration as `python -m cluster_bench` composes it, unresolved, and the options chosen."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = hydra_compose("config", list(overrides), return_hydra_config=True)
    options = dict(cfg.hydra.runtime.choices)
    return OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"]), options


def resolve(cfg: Any, options: Mapping[str, str], values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Plain types only: the configuration with `values` set, and the options chosen under `options`."""
    from omegaconf import OmegaConf

    copy = OmegaConf.create(cfg)
    for name, value in (values or {}).items():
        OmegaConf.update(copy, name, value)
    if copy.scoring.data:
        pinned = copy.benchmarks.get("sha256", {})
        local = {"kind": "local", "folder": copy.scoring.data, "names": copy.scoring.benchmarks}
        OmegaConf.update(copy, "benchmarks", {**local, "sha256": pinned}, merge=False, force_add=True)
    tree: Any = OmegaConf.to_container(copy, resolve=True, throw_on_missing=True)
    return {**tree, OPTIONS: {name: options[name] for name in options if not name.startswith("hydra/")}}


def study_tree(overrides: Sequence[str]) -> dict[str, Any]:
    """The resolved configuration of a study itself: what overrides its cells' fields need not fit the
    default options. Composed once for one state of `conf/` and of what it reads from the environment."""
    # Where conf/config.yaml finds it too, without composing; if not, nothing is remembered.
    given = [value.partition("=")[2] for value in overrides if value.startswith("store=")]
    store = given[-1] if given else os.environ.get("CLUSTER_BENCH_STORE", ".store")
    kept = _remembered(store, "study", list(overrides))
    if kept.exists():
        return json.loads(kept.read_text())
    tree = resolve(*compose([o for o in overrides if o.startswith((*OF_THE_STUDY, "store="))]))
    if tree["store"] == store:
        _remember(kept, tree)
    return tree


def cells(study: Mapping[str, Any], overrides: Sequence[str]) -> Iterator[Cell]:
    """Every cell of a study's grids, in order; `overrides` are the user's own and hold for each.

    Options of a group (`method=full`) are composed once each; values (`seed=1`) are set on the composed
    tree, since composing is what costs time.
    """
    groups = {path.name for path in CONF.iterdir() if path.is_dir()}
    fixed = [*study.get("overrides", []), *(o for o in overrides if not o.startswith(OF_THE_STUDY))]
    for grid in study["grids"]:
        options = [name for name in grid if name in groups]
        values = [name for name in grid if name not in groups]
        for choice in product(*(grid[name] for name in options)):
            picked = dict(zip(options, map(str, choice), strict=True))
            cfg, chosen = compose([*(f"{group}={option}" for group, option in picked.items()), *fixed])
            for value in product(*(grid[name] for name in values)):
                given = dict(zip(values, value, strict=True))
                yield Cell({**picked, **{k: str(v) for k, v in given.items()}}, resolve(cfg, chosen, given))


def remembered_cells(tree: Mapping[str, Any], overrides: Sequence[str]) -> list[Cell]:
    """`cells`, composed once for one state of `conf/`."""
    kept = _remembered(tree["store"], "cells", [tree["study"], list(overrides)])
    if not kept.exists():
        found = cells(tree["study"], overrides)
        _remember(kept, [{"chosen": cell.chosen, "tree": cell.tree} for cell in found])
    here = {"launcher": tree["launcher"]}  # where this one runs is no cell's, and not remembered
    return [Cell(cell["chosen"], {**cell["tree"], **here}) for cell in json.loads(kept.read_text())]


def _remembered(store: str, what: str, given: Any) -> Path:
    """Where the store keeps what was composed: composing takes seconds. Named by all that it comes of."""
    digest = hashlib.sha256(json.dumps([what, given, store]).encode())
    for path in sorted(CONF.rglob("*.yaml")):
        content = path.read_bytes()
        read = {name: os.environ.get(name.decode()) for name in re.findall(rb"oc\.env:(\w+)", content)}
        digest.update(content + repr(read).encode())
    return Path(store) / "studies" / f"{what}-{digest.hexdigest()[:16]}.json"


def _remember(kept: Path, composed: Any) -> None:
    Store(kept.parents[1]).prepare(kept.parent)
    partial = kept.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(composed))
    partial.replace(kept)


def store_of(tree: Mapping[str, Any]) -> Store:
    """The store, and the machine that makes what is missing in it."""
    return Store(Path(tree["store"]), machine(tree))
