"""A one-way mirror of finished runs to a tracker. Nothing is read back from it, and it is off by default.

The mirror stands in the parent process, after a run is in the store: no rank ever sees a tracker. A failure
to log warns and changes nothing else.
"""

import hashlib
import json
import logging
import math
import os
import shutil
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT
from cluster_bench.record import Record

if TYPE_CHECKING:
    import wandb

log = logging.getLogger(__name__)

OUTCOMES = ("passed", "wrong", "syntax_error", "timeout", "unparsed")
COLUMNS = ("benchmark", "value", "stderr", "items", *OUTCOMES, "protocol")


@dataclass(frozen=True, config=STRICT)
class NoTracking:
    """Keep runs to ourselves."""

    def __call__(self, record: Record) -> None:
        """Do nothing."""


@dataclass(frozen=True, config=STRICT)
class Wandb:
    """Weights & Biases: one run per address of scores, with the config, a summary and a table of benchmarks.

    Never asks for anything. Without an API key, or with WANDB_MODE=offline, the run is written below
    `folder`, to be sent by `wandb sync`. A run that was mirrored as it is, in the same mode, is not again.
    """

    project: str
    entity: str | None  # the user or team; None: the account's default
    mode: Literal["auto", "online", "offline"]  # auto: online where there is a key
    folder: Path
    timeout_s: int  # each, to start and to finish

    def __post_init__(self) -> None:
        if self.timeout_s < 1:
            raise ValueError(f"timeout_s {self.timeout_s} is less than 1 second")

    def __call__(self, record: Record) -> None:
        """Mirror one record; what goes wrong is a warning, never an error."""
        try:
            self._mirror(record)
        except Exception as error:  # whatever it is, the run is done and its results are in the store
            told = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            log.warning("tracking: %s was not mirrored: %s", " ".join(_who(record)), told)

    def _mirror(self, record: Record) -> None:
        mode = self._mode()
        if mode == "disabled":
            return
        home, name = self.folder / self.project, run_id(record)
        mark = home / "mirrored" / f"{name}-{mode}"
        told = json.dumps([self.entity, vars(record)], sort_keys=True, default=str)
        content = hashlib.sha256(told.encode()).hexdigest()
        told_before = mark.read_text().split() if mark.is_file() else []
        if content in told_before:
            return
        mark.parent.mkdir(parents=True, exist_ok=True)
        for leftover in home.glob(f"wandb/offline-run-*-{name}") if mode == "offline" else []:
            shutil.rmtree(leftover)  # of an earlier try: `wandb sync` must find the run once
        import wandb

        try:
            self._log(record, home, mode)
        finally:
            wandb.teardown()  # its service ends; what it holds is on disk before the run counts as mirrored
        if mode == "offline" and not [*home.glob(f"wandb/offline-run-*-{name}/*.wandb")]:
            raise RuntimeError(f"wandb wrote nothing below {home}")
        mark.write_text("\n".join([*told_before, content]))

    def _mode(self) -> Literal["online", "offline", "disabled"]:
        asked = os.environ.get("WANDB_MODE", "").lower()
        if asked == "disabled":
            return "disabled"
        if self.mode == "offline" or asked in ("offline", "dryrun"):
            return "offline"
        if _has_key():
            return "online"
        if self.mode == "online":
            log.warning(
                "tracking.mode: online needs WANDB_API_KEY or `wandb login`; writing below %s", self.folder
            )
        return "offline"

    def _log(self, record: Record, home: Path, mode: Literal["online", "offline"]) -> None:
        import wandb

        run = wandb.init(
            project=self.project,
            entity=self.entity,
            id=run_id(record),
            name="-".join(_who(record)),
            group=record.study[:128],
            tags=tags(record),
            config={"experiment": _plain(record.config), "run": _identity(record)},
            dir=str(home),
            mode=mode,
            resume="allow",
            settings=_quiet(self.timeout_s),
        )
        logged = False
        try:
            table = wandb.Table(columns=list(COLUMNS), data=[*rows(record)])
            cast("Any", run.summary).update({**summary(record), "benchmarks": table})
            logged = True
        finally:
            run.finish(exit_code=0 if logged else 1)


TRACKERS: Mapping[str, type] = {"none": NoTracking, "wandb": Wandb}


def run_id(record: Record) -> str:
    """The tracker's name for the run, from the scores' address: mirrored twice, it is the same run."""
    address = next((key for stage, key in record.addresses.items() if stage.split(".")[0] == "scores"), None)
    if address is None:
        raise ValueError("record.addresses: there is no address of scores to name the run by")
    return hashlib.sha256(address.encode()).hexdigest()[:16]


def tags(record: Record) -> list[str]:
    """What runs are filtered by; at most 64 characters each."""
    return [tag[:64] for tag in dict.fromkeys((record.study, *_who(record))) if tag]


def summary(record: Record) -> dict[str, int | float]:
    """The numbers of a run, flat; what was not measured is left out."""
    asked = {*record.scores, *record.items}
    average = statistics.fmean(record.scores.get(name, math.nan) for name in asked) if asked else math.nan
    numbers = {
        **{f"score/{name}": value for name, value in record.scores.items()},
        **{f"stderr/{name}": value for name, value in record.stderr.items()},
        **{name: value for name, value in vars(record).items() if isinstance(value, int | float)},
        "total_seconds": record.total_seconds,
        "average": average,
    }
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def rows(record: Record) -> list[tuple[Any, ...]]:
    """One row per benchmark, in the order of COLUMNS; what is missing is None."""
    table: list[tuple[Any, ...]] = []
    for name in sorted({*record.scores, *record.items}):
        counts = record.counts.get(name, {})
        numbers = [part.get(name) for part in (record.scores, record.stderr, record.items)]
        known = [value if value is not None and math.isfinite(value) else None for value in numbers]
        table.append((name, *known, *(counts.get(out) for out in OUTCOMES), record.protocols.get(name)))
    return table


def _who(record: Record) -> tuple[str, str, str, str]:
    return record.dataset, record.model, record.method, f"seed{record.seed}"


def _identity(record: Record) -> dict[str, Any]:
    """Everything else that a record says of itself, in plain JSON."""
    return {name: value for name, value in _plain(vars(record)).items() if name != "config"}


def _plain(tree: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(tree, default=str))


def _quiet(timeout_s: int) -> "wandb.Settings":
    """No banner, no capture of the console, no code, no facts of the host beyond the record's."""
    import wandb

    logging.getLogger("wandb").propagate = False  # it has its own file beside the run
    return wandb.Settings(
        silent=True,
        console="off",
        init_timeout=timeout_s,
        login_timeout=timeout_s,
        finish_timeout=timeout_s,
        finish_timeout_raises=True,
        disable_git=True,
        disable_code=True,
        x_disable_stats=True,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
    )


def _has_key() -> bool:
    """Whether wandb would find credentials; it is told not to ask and not to call anyone."""
    import wandb

    wandb.setup(settings=wandb.Settings(silent=True))
    return wandb.login(prompt=False, verify=False)
