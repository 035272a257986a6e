"""What was seen of what: rows and items that share so many words in a row."""

import numpy as np
from jaxtyping import Bool, Int64

from cluster_bench.artifacts import Array, Contamination

WORDS = 13  # that a row and an item may not share, as GPT-3's


def rows(found: Contamination, words: int = WORDS) -> Int64[Array, " rows"]:
    """The rows that share `words` words or more with any item, ascending."""
    return np.unique(found.row[shared(found, words)])


def items(
    found: Contamination, words: int = WORDS, among: Int64[Array, " rows"] | None = None
) -> dict[str, int]:
    """How many items of each benchmark share `words` words or more with any row, or with any of `among`."""
    pairs = shared(found, words)
    if among is not None:
        pairs &= np.isin(found.row, among)
    distinct = np.unique(np.stack([found.benchmark[pairs], found.item[pairs]]), axis=1)
    counts = np.bincount(distinct[0], minlength=len(found.names))
    return dict(zip(found.names, counts.tolist(), strict=True))


def shared(found: Contamination, words: int) -> Bool[Array, " p"]:
    """Which pairs share `words` words or more. ValueError where such short runs are not listed."""
    if words < found.shortest:
        raise ValueError(
            f"contamination.shortest: runs from {found.shortest} words on are listed, not {words}"
        )
    return found.run >= words
