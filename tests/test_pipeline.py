"""The walk is one short file that reads from top to bottom."""

from pathlib import Path

import cluster_bench.pipeline


def test_the_walk_is_one_file_under_100_lines():
    assert len(Path(cluster_bench.pipeline.__file__).read_text().splitlines()) < 100


def test_run_names_every_stage_in_order(experiment):
    run = cluster_bench.pipeline.walk(experiment())
    names = list(run.nodes)
    assert (names[0], names[-1]) == ("corpus", "scores")
    for place, node in enumerate(run.nodes.values()):
        before = {run.nodes[name].stage for name in names[:place]}
        assert {parent.stage for parent in node.parents} <= before
