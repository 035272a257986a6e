"""The direction of dependency: a module may import only what stands before it; --help needs no torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "cluster_bench"
BASE = ["artifacts", "launch", "machine", "progress", "record", "world"]
METHODS = [
    "corpora", "models", "tokens", "features", "clusters", "selection", "allocation", "training",
    "benchmarks", "contamination", "scoring",
]  # fmt: skip
AFTER = [
    "torch",
    "store",
    "config",
    "pipeline",
    "cells",
    "study",
    "report",
    "tracking",
    "cost",
    "bench",
    "__main__",
]
LIGHT = ["clusters", "selection", "allocation"]


def imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    modules = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module]
    modules += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    return {m.split(".")[1] for m in modules if m.startswith("cluster_bench.")}


def allowed(here: str) -> set[str]:
    if here in METHODS:
        return {here, *BASE}
    order = [*BASE, *METHODS, *AFTER]
    return set(order[: order.index(here) + 1])


@pytest.mark.parametrize("path", PACKAGE.rglob("*.py"), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    here = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if here != "__init__":
        assert imported(path) <= allowed(here)


@pytest.mark.parametrize("path", PACKAGE.rglob("*.py"), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_every_module_says_what_it_is(path):
    assert not path.read_text().strip() or ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("group", LIGHT)
def test_numpy_stages_need_no_torch(group):
    for path in (PACKAGE / group).rglob("*.py"):
        assert "torch" not in path.read_text()


def test_laying_out_a_run_imports_nothing_heavy():
    code = "import sys; from cluster_bench.cells import compose; import cluster_bench.pipeline; "
    code += "print([m for m in ('torch', 'transformers', 'pandas', 'sklearn', 'wandb') if m in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_a_training_process_imports_only_what_it_uses():
    """What only some trainings need (compiling, snapshots, splitting) is imported by these."""
    heavy = ("torch._dynamo", "torch.distributed.checkpoint", "torch.distributed.fsdp")
    code = f"import sys, cluster_bench.training.worker; print([m for m in {heavy} if m in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
