"""The laws of the report: the missing stays missing, errors keep their kind, equal records, equal bytes."""

import csv
import dataclasses
import math
import random
import re
import statistics
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from cluster_bench import report
from cluster_bench.record import Record
from cluster_bench.report import formats, frame, plots, tables
from cluster_bench.report.estimates import average, estimate, paired
from cluster_bench.report.lines import benchmarks, lines, references

CODE = ("humaneval", "humaneval_plus", "mbpp", "mbpp_plus")
MEDICINE = ("medmcqa", "medqa", "mmlu_medical", "pubmedqa")
MACHINE = {"cpu": "Some CPU @ 2 GHz", "cores": 2, "memory_gib": 8, "torch": "2.13.0", "device": "cpu"}
KEPT = {"base": 0.0, "full": 1.0, "random": 0.31, "cluster_paper": 0.31, "uniform": 1.4}
LEVEL = {"base": 0.31, "full": 0.88, "random": 0.74, "cluster_paper": 0.79, "uniform": 0.86}


def record(method: str, seed: int = 0, dataset: str = "code_a", **changes: Any) -> Record:
    """A run such as the pipeline makes: its numbers follow from the arguments alone."""
    names = MEDICINE if dataset == "medical" else CODE
    noise = random.Random(f"{method} {seed} {dataset} {sorted(changes.get('overrides', {}).items())}")
    ratio = float(changes.get("overrides", {}).get("selection.ratio", 1.0))
    kept, base = KEPT[method] * ratio, method == "base"
    scores = {name: LEVEL[method] + (ratio - 1) / 10 + noise.gauss(0, 0.02) for name in names}
    if base:
        scores = {name: 0.25 + 0.04 * i for i, name in enumerate(names)}
    seconds = 0.0 if base else 60 * kept + noise.uniform(0, 2)
    address = f"{noise.getrandbits(64):016x}" if not base else f"base-{dataset}"
    values: dict[str, Any] = {
        "study": "main",
        "method": method,
        "model": "toy_1m",
        "dataset": dataset,
        "seed": seed,
        "overrides": {"method": method, "dataset": dataset, "seed": str(seed)},
        "config": {
            "seed": seed,
            "store": "/somewhere",
            "selection": {"kind": method, "ratio": ratio},
            "training": {"clip": None, "betas": [0.9, 0.999], "fused": False},
        },
        "addresses": {"corpus": f"corpus-{dataset}", "scores": address},
        "ranks": 4,
        "processes": 4,
        "rows": 4000,
        "left_out_rows": 3,
        "overflow_rows": 40,
        "kept_overflow_rows": 30,
        "kept_rows": int(4000 * min(kept, 1)),
        "corpus_tokens": 120_000,
        "kept_tokens": int(120_000 * kept),
        "steps": 0 if base else int(500 * kept),
        "selection_seconds": 7.5 if method == "cluster_paper" else 0.0,
        "train_seconds": seconds,
        "modelled_train_seconds": seconds,
        "scores": scores,
        "stderr": dict.fromkeys(names, 0.03),
        "items": dict.fromkeys(names, 164),
        "counts": {name: {"passed": 100, "wrong": 64} for name in names},
        "protocols": dict.fromkeys(names, "twin, 0-shot, greedy"),
        "versions": {"lm_eval": "0.4.13"},
        "machine": {**MACHINE, "processes": 4, "threads": 1},
    }
    values.update(changes)
    values["overrides"] = {**changes.get("overrides", {}), **values["overrides"]}
    return Record(**values)


def study(seeds: int = 3, datasets: tuple[str, ...] = ("code_a", "medical")) -> list[Record]:
    methods = ("cluster_paper", "uniform", "random", "full", "base")
    return [record(m, seed, dataset) for seed in range(seeds) for dataset in datasets for m in methods]


def cells(records: list[Record]) -> dict[str, dict[str, str]]:
    """The cells of the only table by method."""
    (table,) = tables.tables(records)
    return {row[2]: dict(zip(table.columns, row, strict=True)) for row in table.rows}


def test_equal_records_give_equal_bytes_in_any_order(tmp_path: Path) -> None:
    report.write(study(), tmp_path / "a", "main", "make reproduce")
    report.write(study()[::-1], tmp_path / "b", "main", "make reproduce")
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert names == {"scores.csv", "table.md", "table.tex", "frontier.svg", "frontier.png", "README.md"}
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    svg = (tmp_path / "a" / "frontier.svg").read_bytes()
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert not re.search(rb"20\d\d-\d\d-\d\dT|[Mm]atplotlib v", svg)
    assert b"Software" not in (tmp_path / "a" / "frontier.png").read_bytes()


def test_every_run_is_a_row_with_all_it_says(tmp_path: Path) -> None:
    records = study()
    rows = list(csv.DictReader(frame.csv(records).splitlines()))
    assert len(rows) == len(records)
    assert [row["method"] for row in rows[::3]][:5] == ["base", "full", "random", "cluster_paper", "uniform"]
    row = next(row for row in rows if row["method"] == "random" and row["dataset"] == "medical")
    source = record("random", 0, "medical")
    assert float(row["score.medqa"]) == source.scores["medqa"]
    assert float(row["train_seconds"]) == source.train_seconds
    assert float(row["average"]) == statistics.fmean(source.scores.values())
    assert row["config.training.betas"] == "[0.9, 0.999]"
    assert row["config.training.clip"] == "null"
    assert row["config.training.fused"] == "false"
    assert row["count.medqa.wrong"] == "64"
    assert row["items.medqa"] == "164"
    assert row["machine.cpu"] == MACHINE["cpu"]
    assert row["address.scores"] == source.addresses["scores"]
    assert "config.store" not in row
    assert row["score.mbpp"] == row["items.mbpp"] == ""  # the medical domain was never asked


def test_a_missing_benchmark_is_a_dash_and_leaves_no_average() -> None:
    whole = record("full")
    for scores in (
        {**whole.scores, "mbpp": math.nan},
        {n: v for n, v in whole.scores.items() if n != "mbpp"},
    ):
        broken = dataclasses.replace(whole, scores=scores)
        records = [record("base"), broken]
        assert average(broken, benchmarks(records, "code_a")) is None
        row = cells(records)["full"]
        assert row["mbpp"] == row["average"] == "—"
        assert row["humaneval"] != "—"
        line = next(r for r in csv.DictReader(frame.csv(records).splitlines()) if r["method"] == "full")
        assert line["score.mbpp"] == line["average"] == ""


def test_seed_error_needs_two_different_runs() -> None:
    one, three = (lines([record("random", seed) for seed in range(n)])[0] for n in (1, 3))
    alone = estimate(one, ["mbpp"])
    assert alone is not None
    assert (alone.error, alone.over_seeds) == (0.03, False)
    together = estimate(three, ["mbpp"])
    values = [record("random", seed).scores["mbpp"] for seed in range(3)]
    assert together is not None
    assert together.error == pytest.approx(statistics.stdev(values) / math.sqrt(3))
    assert together.over_seeds
    base = estimate(lines([record("base", seed) for seed in range(3)])[0], ["mbpp"])  # one run, three names
    assert base is not None
    assert (base.runs, base.over_seeds) == (1, False)


def test_item_errors_are_marked_wherever_they_are_shown() -> None:
    records = [record("full"), record("random")]
    for shown in (formats.markdown(records), report.text(records), formats.latex(records, "t")):
        assert "over the benchmark's items, not over seeds" in re.sub(r"\s+", " ", shown)
    assert all("†" in cells(records)[name]["mbpp"] for name in ("full", "random"))
    several = [record(method, seed) for method in ("full", "random") for seed in range(2)]
    assert "†" not in formats.markdown(several)


def test_saving_is_against_full_on_the_same_machine_or_a_dash() -> None:
    full, method = record("full"), record("cluster_paper")
    row = cells([full, method])["cluster_paper"]
    assert row["saving %"] == f"{100 * (1 - method.total_seconds / full.total_seconds):.1f}"
    assert cells([full, method])["full"]["saving %"] == "0.0"
    assert cells([method])["cluster_paper"]["saving %"] == "—"
    for change in ({"cpu": "Other"}, {"cores": 4}, {"torch": "2.14.0"}, {"processes": 1}, {"threads": 2}):
        moved = dataclasses.replace(full, machine={**full.machine, **change})
        assert cells([moved, method])["cluster_paper"]["saving %"] == "—"


def test_an_untrained_base_has_no_costs() -> None:
    row = cells([record("base"), record("full")])["base"]
    assert {row[name] for name in tables.COSTS if name in row} == {"—"}
    assert row["mbpp"] != "—"


def test_modelled_seconds_have_their_own_column_only_where_ranks_took_turns() -> None:
    assert "modelled" not in formats.markdown(study())
    virtual = dataclasses.replace(record("full"), processes=1, modelled_train_seconds=17.0)
    table = cells([virtual, record("random")])
    assert table["full"]["modelled training s"] == "17.0"
    assert table["random"]["modelled training s"] == "—"
    assert table["full"]["total s"] == f"{virtual.total_seconds:.1f}"


def test_a_figure_never_mixes_machines(tmp_path: Path) -> None:
    other = record("full", machine={**MACHINE, "torch": "2.14.0"})
    with pytest.raises(ValueError, match=r"2 machines.*torch 2\.13\.0 \| .*torch 2\.14\.0"):
        report.write([record("random"), other], tmp_path / "out", "main")
    assert not (tmp_path / "out").exists()


def test_a_table_never_mixes_what_generated() -> None:
    other = record("full", config={"scoring": {"backend": "vllm"}})
    with pytest.raises(ValueError, match=r"scoring\.backend: transformers and vllm in one table"):
        report.text([record("random"), other])


def test_a_figure_of_what_is_there_needs_nothing_else() -> None:
    broken = dataclasses.replace(record("random"), scores={"mbpp": 0.5})
    for records in ([record("base")], [record("base"), broken], [broken], [record("full")]):
        assert plots.frontier(records)["png"].startswith(b"\x89PNG")


def test_nothing_to_report_and_unlike_twins_are_refused() -> None:
    with pytest.raises(ValueError, match="none to report"):
        report.text([])
    twin = record("random", addresses={"scores": "other"}, config={"selection": {"ratio": 0.2}})
    with pytest.raises(
        ValueError, match=r"code_a/toy_1m/random.*seed 0.*config seed, selection, store, training"
    ):
        report.text([record("random"), twin])
    assert report.text([record("random"), record("random")]) == report.text([record("random")])


def test_paired_differences_match_seeds() -> None:
    records = study(datasets=("code_a",))
    records.remove(record("full", 2))
    table = lines(records)
    method = next(line for line in table if line.method == "cluster_paper")
    (full,) = references(method, table, "full")
    value = paired(method, full, CODE)
    gaps = [
        statistics.fmean(record("cluster_paper", s).scores.values())
        - statistics.fmean(record("full", s).scores.values())
        for s in range(2)
    ]
    assert value is not None
    assert value.mean == pytest.approx(statistics.fmean(gaps))
    assert value.error == pytest.approx(abs(gaps[0] - gaps[1]) / 2)
    assert value.runs == 2


def test_a_sweep_gives_a_line_per_cell_in_the_order_of_its_values() -> None:
    ratios = ("1.0", "0.5", "0.75")
    sweep = [record("cluster_paper", s, overrides={"selection.ratio": r}) for r in ratios for s in range(2)]
    matched = [record("random", s, overrides={"selection.ratio": r}) for r in ratios for s in range(2)]
    table = lines([*sweep, *matched, record("full")])
    assert [line.label for line in table if line.method == "cluster_paper"] == [
        "cluster_paper ratio=0.5",
        "cluster_paper ratio=0.75",
        "cluster_paper ratio=1.0",
    ]
    assert [line.label for line in references(table[-1], table, "random")] == ["random ratio=1.0"]
    assert [line.label for line in references(table[-1], table, "full")] == ["full"]


def test_cells_that_are_one_run_are_one_line() -> None:
    ratios = ("0.5", "1.0")
    sweep = [record("cluster_paper", s, overrides={"selection.ratio": r}) for r in ratios for s in range(2)]
    full = [
        record("full", s, overrides={"selection.ratio": r}, addresses={"scores": f"full-{s}"})
        for r in ratios
        for s in range(2)
    ]
    table = lines([*full, *sweep])
    assert [line.label for line in table] == ["full", "cluster_paper ratio=0.5", "cluster_paper ratio=1.0"]
    assert len(table[0].runs) == 2
    assert [references(line, table, "full") for line in table[1:]] == [[table[0]], [table[0]]]
    assert frame.csv([*full, *sweep]) == frame.csv([*sweep, *full[::-1]])


def test_a_constant_override_names_no_line() -> None:
    records = [record(m, overrides={"hardware": "ranks4"}) for m in ("full", "random")]
    assert [line.label for line in lines(records)] == ["full", "random"]


def test_latex_is_escaped_and_balanced() -> None:
    odd = record("random", overrides={"selection.rule": "50%_a&b"}, model="m_{1}")
    text = formats.latex([odd, record("full", model="m_{1}")], "T #1 ~ ^")
    assert "rule=50\\%\\_a\\&b" in text
    assert "m\\_\\{1\\}" in text
    assert "T \\#1 \\textasciitilde{} \\textasciicircum{}" in text
    for name in ("table*", "tabular"):
        assert text.count(f"\\begin{{{name}}}") == text.count(f"\\end{{{name}}}") == 1
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len({len(re.findall(r"(?<!\\)&", row)) for row in rows}) == 1
    assert text.isascii()


def test_markdown_rows_have_the_same_cells() -> None:
    odd = record("random", overrides={"selection.rule": "a|b"})
    rows = [line for line in formats.markdown([odd, record("full")]).splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1


def test_the_terminal_table_loses_no_digit() -> None:
    records = study()
    wide, narrow = report.text(records), report.text(records, width=100)
    for table in tables.tables(records):
        for row in table.rows:
            assert all(cell in wide for cell in row)
            assert row[-1] in narrow
            assert row[table.columns.index("total s")] in narrow
    assert max(map(len, narrow.splitlines())) <= 100
    assert "need a wider terminal" in narrow
    assert "need a wider terminal" not in wide


def test_what_is_there_already_is_left_alone_and_what_was_touched_is_made_again(tmp_path: Path) -> None:
    records = study(datasets=("code_a",))
    report.write(records, tmp_path, "main")
    made = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.iterdir()}
    report.write(records[::-1], tmp_path, "main")
    assert all((tmp_path / name).stat().st_mtime_ns == when for name, (when, _) in made.items())
    for touched in ("scores.csv", "README.md"):
        (tmp_path / touched).write_text("by hand " + (tmp_path / touched).read_text())
        report.write(records, tmp_path, "main")
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
            n: b for n, (_, b) in made.items()
        }


def test_methods_differ_in_colour_and_shape() -> None:
    line = lines(study())[1]
    many = [dataclasses.replace(line, method=f"m{i:02}") for i in range(30)]
    looks = plots.styles(many)
    assert len(set(looks.values())) == 30
    assert len({looks[f"m{i:02}"][1] for i in range(11)}) == 11


def test_the_page_says_how_and_where(tmp_path: Path) -> None:
    report.write(study(), tmp_path, "main", "python -m cluster_bench -m +study=main")
    page = (tmp_path / "README.md").read_text()
    for part in (
        "python -m cluster_bench -m +study=main",
        "Some CPU @ 2 GHz",
        "seeds: 0, 1, 2",
        "lm_eval: 0.4.13",
    ):
        assert part in page
    assert "| code_a | toy_1m | cluster_paper | random |" in page
    assert "| medical | medqa | 164 | 1300 | 832 | twin, 0-shot, greedy |" in page  # of 13 different runs
    assert "/somewhere" not in page
    assert "| code_a | toy_1m | random | random |" not in page
