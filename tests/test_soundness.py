"""Items that cannot tell right from wrong are found, by their own solutions and by one that does nothing."""

import pytest
from test_report import record
from test_scoring import MEDQA, ROWS, write

from cluster_bench import report
from cluster_bench.artifacts import Workspace
from cluster_bench.report.frame import frame
from cluster_bench.scoring import soundness
from cluster_bench.scoring.soundness import ReferenceSolutions

# A root is a number, and the test unpacks it: so it is in a published copy, and no program passes.
VALUE = "def value(xs, x):\n    return sum(c * x**i for i, c in enumerate(xs))\n\n\n"
CHECK = "def check(candidate):\n    for inp in [[[1, 2]], [[4, 2]]]:\n        assert abs({}) <= 1e-4\n"
UNPACKED = {
    "task_id": "Own/0",
    "prompt": VALUE + 'def root(xs):\n    """Find a root."""\n',
    "canonical_solution": "    return -xs[0] / xs[1]\n",
    "entry_point": "root",
    "test": CHECK.format("value(*candidate(*inp), inp)"),
}
RIGHT = {**UNPACKED, "task_id": "Own/1", "test": CHECK.format("value(*inp, candidate(*inp))")}
SILENT = {
    **UNPACKED,
    "task_id": "Own/2",
    "test": "def check(candidate):\n    exact = candidate([1, 2]) == -0.5\n",
}
BARE = {k: v for k, v in RIGHT.items() if k != "canonical_solution"} | {"task_id": "Own/3"}
WORDS = {
    "prompt": "Halve it.",
    "code": "def halve(x):\n    return x / 2",
    "test_list": ["assert halve(2) == 1"],
    "test_imports": [],
}
COMPARED = (
    "def compare(out, exp):\n    same = out == exp\n{}\n"
    "for x, exp in [(2, 1), (3, 1.5)]:\n    compare(halve(x), exp)\n"
)
MBPP_PLUS = [
    {**WORDS, "task_id": 1, "test": COMPARED.format("    assert same")},
    {**WORDS, "task_id": 2, "test": COMPARED.format("")},
    {**WORDS, "task_id": 3, "test": "import time\ntime.sleep(60)\nassert halve(2) == 1\n"},
]


def found(tmp_path, rows):
    tmp_path.joinpath("items").mkdir()
    return ReferenceSolutions(1.0, 512)(write(tmp_path / "items", rows), Workspace(tmp_path))


def test_what_nothing_passes_and_what_everything_passes_is_found(tmp_path, caplog):
    rows = {"humaneval_plus": [UNPACKED, RIGHT, SILENT, BARE], "mbpp_plus": MBPP_PLUS, "medqa": MEDQA}
    made = found(tmp_path, rows)
    assert {name: [*of] for name, of in made.failing.items()} == {"humaneval_plus": ["0"], "mbpp_plus": ["2"]}
    assert "must be an iterable, not float" in made.failing["humaneval_plus"]["0"]
    assert made.failing["mbpp_plus"]["2"] == "timeout"
    assert made.vacuous == {"humaneval_plus": [2], "mbpp_plus": [1]}
    assert made.unknown == {"humaneval_plus": 1, "mbpp_plus": 0}
    assert "humaneval_plus: 1 items that their own reference solution fails: 0" in caplog.text


def test_sound_items_are_not_spoken_of(tmp_path):
    made = found(tmp_path, {name: ROWS[name] for name in ("humaneval", "mbpp", "mbpp_plus")})
    assert (made.failing, made.vacuous) == ({}, {})


def test_without_programs_there_is_no_sandbox(tmp_path, monkeypatch):
    monkeypatch.setattr(soundness, "Sandbox", None)
    made = found(tmp_path, {"medqa": MEDQA})
    assert (made.failing, made.vacuous, made.unknown) == ({}, {}, {})


def test_the_page_and_the_table_name_the_items(tmp_path):
    runs = [record("full", seed, failing={"humaneval": [32]}, vacuous={"mbpp": [1, 7]}) for seed in range(2)]
    report.write(runs, tmp_path, "main", "")
    page = (tmp_path / "README.md").read_text()
    assert page.count("- humaneval: 32 fails its own reference solution") == 1
    assert page.count("- mbpp: 1, 7 passes a function that does nothing") == 1
    assert frame(runs)["vacuous.mbpp"].tolist() == ["[1, 7]"] * 2
    report.write([record("full")], tmp_path / "sound", "main", "")
    assert "cannot tell" not in (tmp_path / "sound" / "README.md").read_text()


@pytest.mark.parametrize(
    ("protocol", "micro"),
    [("loglikelihood-sum of letters macro batch=4", 100 / 164), ("0-shot", None)],
)
def test_a_macro_average_has_its_micro_average_beside_it(protocol, micro):
    run = record("full", protocols={"mbpp": "0-shot", "humaneval": protocol})
    assert run.micro.get("humaneval") == micro
    assert ("micro.humaneval" in frame([run])) == (micro is not None)
