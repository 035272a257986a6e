"""How fast the training is, as ratios between arms measured in one run on one pinned thread.

    python -m cluster_bench.bench

Rules: arms interleaved, minimum of the rounds, CPU time beside wall time, the load average, the baseline
against itself (off by more than 3%: inconclusive, never a number that counts), floors from the same run. The
process starts itself again with an allocator that keeps its memory; else equal arms differ by where it lies.
What is computed from a cost table instead of measured is called modelled.
"""
