"""What a run would cost on 4 or 8 GPUs: time, GPU memory and disk by formula, before anything is made.

All that comes out of here is *modelled*: nobody ran it. No weights, no network and no torch are needed.
`shapes` and `devices` are the published numbers that the formulas of `compute`, `memory` and `disk` start
from; `setting` reads a composed configuration, `stages` prices each stage of the walk, `plan` shows it;
`table` (`python -m cluster_bench.cost`) writes `results/paper/modelled`. tests/test_cost.py holds the
formulas to published measurements within 15% and says which rows the constants were fitted to.
"""
