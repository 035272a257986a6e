"""Snapshots: all that a training needs to go on after a crash, written while it trains on.

    snapshots/step_<n>/    the state after n steps, in the files of torch.distributed.checkpoint
    snapshots/step_<n>/snapshot.json    its plan and the size of each file; there only once all is written

The schedule and the plan's position are functions of n. The same plan gives the same final bytes whether or
not a training was interrupted; another number of processes gives them to rounding. The parent chooses the
snapshot (`latest`), the processes load it (`Snapshots.restore`).
"""

import json
import logging
import shutil
import time
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from cluster_bench.training.learner import Learner

KEPT = 2  # snapshots; the older one is for the case that the newer one is damaged
SNAPSHOTS = "snapshots"  # the folder, beside the request
FACTS = "snapshot.json"

log = logging.getLogger(__name__)


def latest(folder: Path, plan_hash: str) -> int:
    """The number of steps in the newest whole snapshot; 0 without one.

    Damaged ones are removed, which is said. RuntimeError, with both hashes, for one of another plan.
    """
    for path in sorted(folder.glob("step_*"), key=_steps, reverse=True):
        damage = _damage(path)
        if damage:
            log.warning("%s: %s; it is removed", path, damage)
            shutil.rmtree(path)
            continue
        plan = json.loads((path / FACTS).read_text())["plan"]
        if plan != plan_hash:
            raise RuntimeError(
                f"{path} is a snapshot of plan {plan}, but this training follows plan {plan_hash}; "
                "remove the folder to train from the start"
            )
        return _steps(path)
    return 0


def _steps(path: Path) -> int:
    return int(path.name.removeprefix("step_"))


def _damage(path: Path) -> str:
    """What is wrong with the files of a snapshot; empty if nothing is."""
    if not (path / FACTS).exists():
        return "it was not written to the end"
    for name, size in json.loads((path / FACTS).read_text())["sizes"].items():
        if not (path / name).exists():
            return f"{name} is missing"
        if (path / name).stat().st_size != size:
            return f"{name} has {(path / name).stat().st_size} bytes instead of {size}"
    return ""


class Snapshots:
    """Takes and restores the snapshots of one training; every process has one."""

    def __init__(self, folder: Path, plan_hash: str, minutes: float) -> None:
        import torch.distributed as dist

        self._folder, self._plan, self._period_s = folder, plan_hash, 60 * minutes
        self._process = dist.get_rank()
        # A group of its own, on the CPU: writing must not meet the training's sums.
        self._group: Any = dist.new_group(backend="gloo")
        self._last = time.monotonic()
        self._writing: tuple[int, Future[Any]] | None = None

    def restore(self, learner: "Learner", steps: int) -> None:
        """Set model, optimizer and random state to what they were after so many steps."""
        import torch
        from torch.distributed.checkpoint.filesystem import FileSystemReader
        from torch.distributed.checkpoint.state_dict_loader import load

        state = learner.state()
        random = f"random_{self._process}"
        reader = FileSystemReader(self._folder / f"step_{steps}")
        if random in reader.read_metadata().state_dict_metadata:
            state[random] = torch.get_rng_state()
        load(state, storage_reader=reader, process_group=self._group)
        if random in state:
            torch.set_rng_state(state.pop(random))
        learner.restore(state)

    @property
    def due(self) -> bool:
        """Whether it is time for one; process 0 decides, and only when the last one is written."""
        self._seal(wait=False)
        return self._process == 0 and not self._writing and time.monotonic() > self._last + self._period_s

    def take(self, learner: "Learner", steps: int) -> None:
        """Copy the state and begin to write it. All processes call this after the same step."""
        import torch
        from torch.distributed.checkpoint.staging import BlockingAsyncStager
        from torch.distributed.checkpoint.state_dict_saver import async_save

        self._seal(wait=True)
        self._last = time.monotonic()
        state = {**learner.state(), f"random_{self._process}": torch.get_rng_state()}
        future = async_save(
            state,
            checkpoint_id=self._draft(steps),
            process_group=self._group,
            async_stager=BlockingAsyncStager(cache_staged_state_dict=False),
        )
        self._writing = steps, cast("Future[Any]", future)

    def close(self) -> None:
        """Wait for a snapshot under way."""
        self._seal(wait=True)

    def _draft(self, steps: int) -> Path:
        return self._folder / f".step_{steps}"

    def _seal(self, wait: bool) -> None:
        """Make a written snapshot count, and remove the oldest; a failure to write is said, not raised."""
        if not self._writing or not (wait or self._writing[1].done()):
            return
        from torch.distributed.checkpoint.api import CheckpointException  # a BaseException

        (steps, future), self._writing = self._writing, None
        try:
            future.result()
        except (Exception, CheckpointException) as error:
            log.warning("no snapshot after step %d: %s", steps, _first_cause(error))
            if self._process == 0:
                shutil.rmtree(self._draft(steps), ignore_errors=True)
            return
        if self._process == 0:
            draft = self._draft(steps)
            sizes = {path.name: path.stat().st_size for path in sorted(draft.iterdir())}
            (draft / FACTS).write_text(json.dumps({"plan": self._plan, "sizes": sizes}))
            draft.replace(self._folder / f"step_{steps}")
            for old in sorted(self._folder.glob("step_*"), key=_steps)[:-KEPT]:
                shutil.rmtree(old)


def _first_cause(error: BaseException) -> str:
    """The innermost reason, as one line: `OSError: [Errno 28] No space left on device`."""
    failures = getattr(error, "failures", None)
    if failures:
        inner: Any = next(iter(failures.values()))
        return _first_cause(inner[0] if isinstance(inner, tuple) else inner)
    cause = error.__cause__ or error.__context__
    if cause is not None and not isinstance(error, OSError):
        return _first_cause(cause)
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
