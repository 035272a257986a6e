"""What `plan=true` shows of a run on GPUs, and what is refused before it is tried."""

import dataclasses
import io
import itertools
from collections.abc import Mapping
from typing import Any

from cluster_bench.cells import store_of
from cluster_bench.config import structure
from cluster_bench.cost.compute import Loop
from cluster_bench.cost.devices import DEVICES, GIB, Device, detect
from cluster_bench.cost.memory import Memory, train_memory
from cluster_bench.cost.setting import Setting, setting
from cluster_bench.cost.stages import Cost, costs
from cluster_bench.pipeline import walk

GPUS = (4, 8)
NONE = "—"


def text(tree: Mapping[str, Any]) -> str:
    """Every stage of the walk on 4 and 8 of each GPU, modelled; one line where that cannot be."""
    try:
        of = setting(tree, _lengths(tree))
    except ValueError as error:
        return f"modelled: nothing, {error}\n"
    kept = f"{'at most ' * of.kept_at_most}{of.kept:.0%} of {of.rows:,} rows of {of.mean:.0f} tokens"
    lines = [
        f"modelled, nobody ran it: {of.shape.parameters / 1e9:.2f}e9 parameters, {kept}, "
        f"{of.epochs} epochs, {of.steps} steps; as configured: {_how(of.loop)}",
        _shown("stage", _times(of)),
        _shown("GiB on each GPU", _memories(of)),
        *_refusals(of),
        f"{NONE} not modelled (a download, or not used); ≤ a bound; no: does not fit. Features and scoring "
        "use one GPU.",
    ]
    return "\n".join(lines) + "\n"


def refuse(tree: Mapping[str, Any]) -> None:
    """Raise ValueError with the numbers where training cannot fit on the GPUs that are asked for.

    The GPU is `hardware.gpu`, or the one that is here; what is not known to us is not refused.
    """
    device = _device(tree["hardware"])
    if device is None or not tree["training"]["epochs"]:
        return
    try:
        of = setting(tree, _lengths(tree))
    except ValueError:
        return
    line = _refusal(of, of.loop, device)
    if line:
        raise ValueError(line)


def _lengths(tree: Mapping[str, Any]) -> Any:
    """Tokens of each row where the store has them; None also where its address needs what is missing."""
    try:
        store, run = store_of(tree), walk(structure(tree))
    except ValueError:
        return None
    return store.get(run.tokens).lengths if store.has(run.tokens) else None


def _device(hardware: Mapping[str, Any]) -> Device | None:
    name = hardware.get("gpu")
    if name is None:
        return detect()
    if name not in DEVICES:
        raise ValueError(f"hardware.gpu: {name!r} is not one of {', '.join(DEVICES)}")
    return DEVICES[name]


def _times(of: Setting) -> list[tuple[str, ...]]:
    where = [(gpus, device) for device in DEVICES.values() for gpus in GPUS]
    head = ("", *(f"{gpus} {device.name}" for gpus, device in where), "disk")
    by = {sharded: [costs(of, device, gpus, sharded) for gpus, device in where] for sharded in (False, True)}
    rows: list[tuple[str, ...]] = [head]
    for stage, first in by[True][0].items():
        for sharded, name in ((False, "replicated"), (True, "sharded")):
            if stage != "training" and sharded:
                continue
            label = f"{stage}, {name}" if stage == "training" else stage
            cells = [_cell(cost[stage], device) for cost, (_, device) in zip(by[sharded], where, strict=True)]
            rows.append((label, *cells, _bytes(first.disk)))
    return rows


def _cell(cost: Cost, device: Device) -> str:
    if cost.memory and cost.memory.fit(device) == "no":
        return "no"
    return "≤ " * cost.at_most * bool(cost.seconds) + _seconds(cost.seconds)


def _memories(of: Setting) -> list[tuple[str, ...]]:
    parts = [field.name for field in dataclasses.fields(Memory)]
    sizes = {f"{device.memory / GIB:.0f} GiB": device for device in DEVICES.values()}
    used: dict[str, Memory] = {}
    for gpus in GPUS:
        for sharded in (False, True):
            for stage, cost in costs(of, DEVICES["h100"], gpus, sharded).items():
                how = (f", sharded over {gpus}" if sharded else ", replicated") if stage == "training" else ""
                if cost.memory:
                    used[stage + how] = cost.memory
    rows = [("", *parts, "peak", *sizes)]
    for name, memory in used.items():
        numbers = [f"{getattr(memory, part) / GIB:.1f}" for part in parts]
        fits = [memory.fit(device) for device in sizes.values()]
        rows.append((name, *numbers, f"{memory.total / GIB:.1f}", *fits))
    return rows


def _refusals(of: Setting) -> list[str]:
    """Why what does not fit does not, once for each size of GPU and way of training."""
    said: dict[str, None] = {}
    for device in (DEVICES["h100"], DEVICES["h200"]):
        for gpus, sharded in ((4, False), (4, True), (8, True)):
            line = _refusal(of, dataclasses.replace(of.loop, gpus=gpus, sharded=sharded), device)
            if line:
                said[line] = None
    return list(said)


def _refusal(of: Setting, loop: Loop, device: Device) -> str:
    """One line with the numbers and a way out; empty where the loop fits."""
    memory = train_memory(loop, of.micro_longest)
    if memory.fit(device) != "no":
        return ""
    return (
        f"training {_how(loop)} needs {memory.total / GIB:.1f} GiB on each, more than the "
        f"{device.memory / GIB:.0f} GiB of {device.name} ({memory}); {_way_out(of, loop, device)}"
    )


def _how(loop: Loop) -> str:
    return f"sharded over {loop.gpus} GPUs" if loop.sharded else f"replicated on {loop.gpus} GPUs"


def _way_out(of: Setting, loop: Loop, device: Device) -> str:
    """The least changes that fit: one that splits the states over GPUs, one that does not."""
    again = "hardware.activation_checkpointing=true"
    pure = "bfloat16 weights (the fast loop's training.dtype=pure_bfloat16)"
    changes: dict[str, dict[str, Any]] = {
        "": {},
        f" with {again}": {"checkpointing": "full"},
        f" with {pure}": {"masters": "bfloat16"},
        f" with {again} and {pure}": {"checkpointing": "full", "masters": "bfloat16"},
    }
    found: list[str] = []
    for layouts in ([(True, loop.gpus), (True, 8)], [(False, loop.gpus)]):
        fitting = (
            f"{_how(way)}{' (hardware.sharded=true)' * sharded}{change} it needs {memory.total / GIB:.1f} GiB"
            for sharded, gpus in layouts
            for change, fields in changes.items()
            for way in [dataclasses.replace(loop, sharded=sharded, gpus=gpus, **fields)]
            for memory in [train_memory(way, of.micro_longest)]
            if memory.fit(device) == "fits"
        )
        found += itertools.islice(fitting, 1)
    return ", ".join(found) or "nothing fits here but smaller micro-batches or a GPU with more memory"


def _shown(title: str, rows: list[tuple[str, ...]]) -> str:
    """A table for the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for n, name in enumerate(rows[0]):
        table.add_column(name or title, justify="right" if n else "left", no_wrap=True)
    for row in rows[1:]:
        table.add_row(*row)
    out = io.StringIO()
    Console(file=out, width=1000, color_system=None, emoji=False, highlight=False).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _seconds(seconds: float | None) -> str:
    if not seconds:
        return NONE
    if seconds < 1:
        return "< 1 s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _bytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
