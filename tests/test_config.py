"""The configuration: every option composes, one experiment has one address, a wrong line is named."""

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cluster_bench.cells import CONF, cells
from cluster_bench.config import METHODS, build, machine, structure
from cluster_bench.pipeline import plan, walk
from cluster_bench.selection import SELECTORS
from cluster_bench.store import Store

GROUPS = sorted(path.name for path in CONF.iterdir() if path.is_dir() and path.name != "hydra")
OPTIONS = [(group, path.stem) for group in GROUPS for path in sorted((CONF / group).glob("[!_]*.yaml"))]
NEEDS_FILE = {("dataset", "jsonl"), ("scale", "small")}
NEEDS_FOLDER = {("benchmarks", "local"), ("scale", "small"), ("scale", "paper")}

ON_NODES = ["launcher.nodes=2", "launcher.node=1", "launcher.run=name", "hardware.processes=4"]


@pytest.fixture
def rows_file(tmp_path: Path) -> str:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"instruction": "Add.", "input": "1 2", "output": "3"}\n')
    return f"dataset.path={path}"


@pytest.fixture
def items_folder() -> str:
    return f"benchmarks.folder={Path(__file__).parent / 'data/benchmarks'}"


@pytest.mark.parametrize(("group", "option"), OPTIONS, ids=lambda v: v)
def test_every_option_composes(group, option, tree, rows_file, items_folder):
    extra = [rows_file] if (group, option) in NEEDS_FILE else []
    extra += [items_folder] if (group, option) in NEEDS_FOLDER else []
    extra += ON_NODES if (group, option) == ("launcher", "nodes") else []
    composed = tree(f"{group}={option}", *extra)
    experiment = structure(composed)
    assert machine(composed).processes <= composed["hardware"]["ranks"]
    assert len(walk(experiment).nodes) == len(METHODS) + 1  # soundness has the limits of scoring


@pytest.mark.parametrize("method", [option for group, option in OPTIONS if group == "method"])
@pytest.mark.parametrize("scale", [option for group, option in OPTIONS if group == "scale"])
def test_every_method_composes_at_every_scale(method, scale, tree, rows_file, items_folder):
    extra = {"toy": [], "small": [rows_file, items_folder], "paper": [items_folder]}[scale]
    structure(tree(f"scale={scale}", f"method={method}", *extra))


@pytest.mark.parametrize("scale", ["toy", "small", "paper"])
def test_a_folder_of_data_is_the_local_option(scale, tree, items_folder):
    folder, two = items_folder.partition("=")[2], ["dataset=toy_oss", f"scale={scale}"]
    short = tree(*two, f"scoring.data={folder}")
    long = tree(*two, "benchmarks=local", items_folder)
    assert walk(structure(short)).scores.key == walk(structure(long)).scores.key
    assert short["benchmarks"].items() >= long["benchmarks"].items()


@pytest.mark.parametrize(("group", "option"), OPTIONS, ids=lambda v: v)
def test_every_option_is_short_and_says_where_it_comes_from(group, option):
    lines = (CONF / group / f"{option}.yaml").read_text().splitlines()
    comments = [line for line in lines if line.startswith("# ") and not line.startswith("# @package")]
    assert comments
    assert len(lines) < 20


@pytest.mark.parametrize("group", sorted(METHODS))
def test_kinds_files_and_classes_belong_together(group):
    texts = [path.read_text() for path in (CONF / group).glob("*.yaml")]
    alone = [text for text in texts if "\ndefaults:" not in text]  # the others build on one of these
    used = {re.search(r"^ *kind: (\w+)", text, re.MULTILINE)[1] for text in alone}
    assert used <= set(METHODS[group])


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ({"kind": "balance"}, "selection.kind: 'balance' is not one of"),
        ({"kind": "balanced", "ratoi": 0.1, "keep": "far", "seed": 0}, "did you mean 'ratio'"),
        (
            {"kind": "balanced", "ratio": "a tenth", "keep": "far", "seed": 0},
            "selection.ratio: input should be",
        ),
        ({"kind": "balanced", "ratio": 1.5, "keep": "far", "seed": 0}, "ratio must be in (0, 1], got 1.5"),
        ({"kind": "balanced", "ratio": 0, "keep": "far", "seed": 0}, "ratio must be in (0, 1], got 0"),
        ({"kind": "balanced", "ratio": 0.5, "keep": "close", "seed": 0}, "selection.keep: input should be"),
        ({"kind": "balanced", "keep": "far", "seed": 0}, "selection.ratio: missing"),
    ],
)
def test_a_wrong_line_is_named(node, says):
    with pytest.raises(ValueError, match=re.escape(says)) as error:
        build("selection", SELECTORS, node)
    assert "\n" not in str(error.value)


def test_one_experiment_has_one_address(experiment):
    """`ratio=1` and `ratio=1.0` are the same run, however they were spelt."""
    one, same = walk(experiment("selection.ratio=1")), walk(experiment("selection.ratio=1.0"))
    assert one.scores.key == same.scores.key


def test_processes_count_in_no_address(experiment):
    assert walk(experiment()).scores.key == walk(experiment("hardware.processes=4")).scores.key


def test_features_are_shared_by_every_rank_count(experiment):
    four, eight = walk(experiment()), walk(experiment("hardware=ranks8"))
    assert four.features.key == eight.features.key
    assert four.clusters.key != eight.clusters.key


def test_full_is_one_run_at_every_ratio_and_random_is_not(experiment):
    def addresses(method: str) -> set[str]:
        ratios = ("0.5", "0.75", "1.0")
        return {walk(experiment(f"method={method}", f"selection.ratio={r}")).scores.key for r in ratios}

    assert len(addresses("full")) == 1
    assert len(addresses("random")) == len(addresses("cluster_paper")) == 3


def test_methods_differ(experiment):
    methods = [path.stem for path in (CONF / "method").glob("*.yaml")]
    assert len({walk(experiment(f"method={method}")).scores.key for method in methods}) == len(methods)


def test_walk_and_plan_compute_nothing(experiment, tmp_path):
    store = Store(tmp_path)
    assert plan(walk(experiment()), store).count("make ") == len(METHODS) + 1
    assert not list(tmp_path.iterdir())


def test_cells_cover_the_grid_and_differ(tree):
    study = tree("study=main")["study"]
    chosen = list(cells(study, ["study=main"]))
    expected = sum(len(list(itertools.product(*grid.values()))) for grid in study["grids"])
    assert len(chosen) == expected
    assert len({cell.run.scores.key for cell in chosen}) == expected
    assert {cell.tree["options"]["method"] for cell in chosen} >= {"full", "base", "random", "cluster_paper"}


def test_a_cell_is_what_its_command_line_composes(tree):
    study = {"grids": [{"method": ["random"], "seed": [2], "selection.ratio": [0.75]}]}
    (cell,) = cells(study, ["hardware=ranks8"])
    assert cell.tree == tree("method=random", "seed=2", "selection.ratio=0.75", "hardware=ranks8")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["method=clutser"], "clutser"),
        (["selection.ratoi=0.5"], "ratoi"),
        (["selection.ratio=2"], "selection: ratio must be in (0, 1], got 2"),
        (
            ["training.global_batch=30"],
            "training: global_batch 30 does not divide over ranks 4 x micro_batch",
        ),
        (["hardware.processes=9"], "hardware.processes: 9 is not between 1 and ranks 4"),
        (
            ["launcher=slurm", "launcher.nodes=2", "hardware.processes=3"],
            "hardware.processes: 3 does not divide over launcher.nodes 2",
        ),
        (["dataset=jsonl", "dataset.path=/nowhere/rows.jsonl"], "/nowhere/rows.jsonl"),
        (["benchmarks=local", "benchmarks.folder=/nowhere"], "/nowhere/humaneval_plus.jsonl is missing"),
        (["scoring.data=/nowhere"], "/nowhere/humaneval_plus.jsonl is missing"),
        (["store=/proc/nowhere"], "store: /proc/nowhere cannot be written"),
    ],
)
def test_bad_input_gets_one_line_and_code_2(arguments, says, tmp_path):
    command = [sys.executable, "-m", "cluster_bench", *arguments]
    store = [] if any(a.startswith("store=") for a in arguments) else [f"store={tmp_path / 'store'}"]
    ended = subprocess.run([*command, *store], capture_output=True, text=True)
    assert ended.returncode == 2, ended.stderr
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert says in last
    assert not (tmp_path / "store").exists()
