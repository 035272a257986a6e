"""`python -m cluster_bench.cost`: write the modelled table of the paper's runs to results/paper/modelled."""

from cluster_bench.cost.table import FOLDER, write

if __name__ == "__main__":
    write()
    print(f"wrote {FOLDER}")
