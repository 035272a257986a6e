"""The modelled table: full data, the paper's ratios and 31% by every method, 7B and 13B, 4 and 8 GPUs.

    python -m cluster_bench.cost        writes results/paper/modelled: modelled.csv, README.md, hours.svg

Equal code gives equal bytes. Every row says whether it is modelled or published.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cluster_bench.cost.arms import Arm, Trained, arms, hours, loops
from cluster_bench.cost.devices import DEVICES, GIB, Device
from cluster_bench.cost.published import PUBLISHED
from cluster_bench.cost.setting import Setting, setting

FOLDER = Path("results/paper/modelled")
BLOCKS = tuple(
    (dataset, f"{family}_{size}", training)
    for dataset, family, training in (
        ("oss_instruct", "codellama", "paper_code"),
        ("evol_instruct", "codellama", "paper_code"),
        ("medinstruct", "llama2", "paper_medical"),
    )
    for size in ("7b", "13b")
)


@dataclass(frozen=True)
class Row:
    """One cell of the table with all that belongs to it; None where nothing is known."""

    source: str  # modelled or published
    dataset: str
    model: str
    gpu: str
    gpus: int
    loop: str
    how: str
    gib: float | None  # on each GPU
    method: str
    kept: float
    selection: float | None  # hours
    training: float | None
    total: float
    saving: float  # of the total, against full data in the same loop


def settings() -> dict[tuple[str, str], Setting]:
    """The paper's protocol on full data, from the presets of the configuration."""
    from omegaconf import OmegaConf

    from cluster_bench.cells import compose

    found: dict[tuple[str, str], Setting] = {}
    for dataset, model, training in BLOCKS:
        options = ["scale=paper", "method=full", f"dataset={dataset}", f"model={model}"]
        cfg, _ = compose([*options, f"training={training}"])
        tree: Any = OmegaConf.to_container(cfg, resolve=True)  # items of benchmarks may be missing here
        found[dataset, model] = setting(tree)
    return found


def rows() -> list[Row]:
    """All of the table, the published rows after those of their block."""
    made: list[Row] = []
    for (dataset, model), of in settings().items():
        for device in DEVICES.values():
            for gpus in (4, 8):
                made += _block(dataset, model, of, device, gpus)
        made += _published(dataset, model)
    return made


def _block(dataset: str, model: str, of: Setting, device: Device, gpus: int) -> list[Row]:
    ways = list(loops(of, device, gpus))
    epoch = hours(of, ways[1], device, 1.0) / of.epochs
    return [
        _row((dataset, model), of, arm, way, (device, gpus), epoch)
        for way in ways
        for arm in arms(dataset, of.shape)
    ]


def _row(
    names: tuple[str, str], of: Setting, arm: Arm, way: Trained, where: tuple[Device, int], epoch: float
) -> Row:
    device, gpus = where
    training, selection = hours(of, way, device, arm.kept), arm.epochs * epoch
    full = hours(of, way, device, 1.0)
    return Row(
        source="modelled",
        dataset=names[0],
        model=names[1],
        gpu=device.name,
        gpus=gpus,
        loop=way.name,
        how=way.how if way.memory.fit(device) == "fits" else "does not fit",
        gib=way.memory.total / GIB,
        method=arm.method,
        kept=arm.kept,
        selection=selection,
        training=training,
        total=selection + training,
        saving=1 - (selection + training) / full,
    )


def _published(dataset: str, model: str) -> list[Row]:
    runs = [run for run in PUBLISHED if (run.dataset, run.model) == (dataset, model)]
    return [
        Row(
            source="published",
            dataset=dataset,
            model=model,
            gpu="H100",
            gpus=4,
            loop="the paper's own",
            how="",
            gib=None,
            method=run.method,
            kept=run.kept,
            selection=None,
            training=None,
            total=run.hours,
            saving=1 - run.hours / runs[0].hours,
        )
        for run in runs
    ]


def csv(table: list[Row]) -> str:
    """Every row, hours to 4 digits; an empty cell is not known."""
    lines = [",".join(_column(name) for name in asdict(table[0]))]
    lines += [",".join(_written(value) for value in asdict(row).values()) for row in table]
    return "\n".join(lines) + "\n"


def _column(name: str) -> str:
    units = {"gib": "gib_per_gpu", "kept": "kept_share", "saving": "saving_share"}
    return units.get(name, f"{name}_hours" if name in ("selection", "training", "total") else name)


def _written(value: Any) -> str:
    if value is None:
        return ""
    text = f"{value:.4f}" if isinstance(value, float) else str(value)
    return f'"{text}"' if "," in text else text


def files(table: list[Row]) -> dict[str, bytes]:
    """The three files of the folder."""
    from cluster_bench.cost.page import figure, page

    return {
        "modelled.csv": csv(table).encode(),
        "README.md": page(table).encode(),
        "hours.svg": figure(table),
    }


def write(folder: Path = FOLDER) -> None:
    """Make the files."""
    made = files(rows())
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in made.items():
        (folder / name).write_bytes(content)
