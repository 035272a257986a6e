"""One progress bar for every long stage: drawn on a terminal, a log line every few seconds elsewhere.

with progress("features", total=len(rows), unit="rows") as advance:
    advance(batch)
"""

import logging
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

EVERY_S = 10.0  # between two log lines

log = logging.getLogger(__name__)


@contextmanager
def progress(label: str, total: int, unit: str) -> Generator[Callable[[int], None], None, None]:
    """Yield a function that counts finished units; an estimate of what is left is shown beside them."""
    if not sys.stderr.isatty():
        yield _logged(label, total, unit)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:<12}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)

        def advance(count: int) -> None:
            bar.update(task, advance=count)

        yield advance


def _logged(label: str, total: int, unit: str) -> Callable[[int], None]:
    start = last = time.monotonic()
    done = 0

    def advance(count: int) -> None:
        nonlocal done, last
        done += count
        now = time.monotonic()
        if now - last >= EVERY_S:
            last = now
            left = (now - start) / max(done, 1) * (total - done)
            log.info("%s: %d of %d %s, about %.0f s left", label, done, total, unit, left)

    return advance
