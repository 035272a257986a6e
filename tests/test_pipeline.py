"""The walk is one short file that reads from top to bottom."""

from pathlib import Path

import cluster_bench.pipeline


def test_the_walk_is_one_file_under_100_lines():
    assert len(Path(cluster_bench.pipeline.__file__).read_text().splitlines()) < 100


def test_run_names_every_stage_in_order(experiment):
    run = cluster_bench.pipeline.walk(experiment())
    assert list(run.nodes)[0] == "corpus"
    assert list(run.nodes)[-1] == "scores"
    for name, node in run.nodes.items():
        seen = list(run.nodes)[: list(run.nodes).index(name)]
        assert {parent.stage for parent in node.parents} <= {run.nodes[n].stage for n in seen}
