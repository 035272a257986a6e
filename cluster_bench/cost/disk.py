"""Bytes on disk, by the formats that the stages write."""

from cluster_bench.cost.shapes import Shape

SNAPSHOTS = 2  # kept at a time: training/snapshots.py
LESS_DIMENSIONS, LESS_CHECKPOINTS = 8192, 4  # arXiv 2402.04333, section 4 and its appendix


def model(shape: Shape) -> float:
    """The published weights, bfloat16; hard-linked from the hub's cache where that is possible."""
    return 2.0 * shape.parameters


def tokens(rows: int, mean: float) -> float:
    """One int32 a token, three int64 a row."""
    return rows * (4.0 * mean + 24)


def features(rows: int, dimensions: int) -> float:
    """float32 vectors and norms, twice while the shards are gathered."""
    return 2.0 * rows * 4 * (dimensions + 1)


def clusters(rows: int) -> float:
    """Label, distance and overflow flag of each row."""
    return rows * 13.0


def selection(rows: int) -> float:
    """The kept rows."""
    return rows * 8.0


def allocation(rows: int) -> float:
    """Row, rank and weight of each kept row."""
    return rows * 20.0


def training(shape: Shape, states: float) -> float:
    """The tuned weights in float32, and while training two snapshots of weights and optimizer `states`."""
    return 4.0 * shape.parameters + SNAPSHOTS * (4.0 * shape.parameters + states)


def gradient_store(rows: int) -> float:
    """LESS's store: a projected gradient in 16 bits of every row at every checkpoint."""
    return rows * LESS_DIMENSIONS * LESS_CHECKPOINTS * 2.0
