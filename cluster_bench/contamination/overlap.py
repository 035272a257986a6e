"""Which texts share runs of words: all pairs at once, by the hashes of their n-grams.

The items' n-grams are hashed and sorted once. Rows come in chunks: their n-grams are looked up, and n-grams
that match one after the other, in the row and in the item, are one longer run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64, UInt64

from cluster_bench.artifacts import Array
from cluster_bench.contamination.words import words
from cluster_bench.progress import progress

CHUNK = 1 << 16  # words looked up at a time
MATCHES = 1 << 23  # n-grams matched at a time, above which a chunk is halved: about 1 GB
PAIRS = 100_000_000  # above which the list is of no use to anyone
BITS = 22  # of the table that tells most n-grams that occur nowhere
MIX = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # of SplitMix64

Text = Sequence[str]
"""One row or item: parts that no run goes across."""


@dataclass(frozen=True)
class Overlaps:
    """Pairs of a row and an item that share a run of words, by row, then item."""

    row: Int64[Array, " p"]
    item: Int64[Array, " p"]
    run: Int64[Array, " p"]  # words in the longest run that both have
    start: Int64[Array, " p"]  # where it begins: word of the row, a part's end counting as a word


@dataclass(frozen=True)
class Index:
    """The items' words, and their n-grams sorted by hash."""

    n: int
    vocabulary: dict[str, int]  # from 1; 0 is every other word, and the end of a part
    ids: Int64[Array, " words"]
    item: Int64[Array, " words"]  # whose word it is
    hashes: UInt64[Array, " grams"]
    places: Int64[Array, " grams"]  # word at which the n-gram of each hash begins
    table: Bool[Array, " slots"]  # by the first bits of a hash: whether any item's begins so


def overlaps(rows: Sequence[Text], items: Sequence[Text], n: int) -> Overlaps:
    """Every pair of a row and an item with at least `n` words in a row in common.

    ValueError where PAIRS of them do: then what they share is the form of the texts.
    """
    index = _index(items, n)
    found: list[tuple[Any, ...]] = []
    pairs = 0
    with progress("contamination", len(rows), "rows") as advance:
        for first, last in _chunks(rows):
            found += _chunk(index, rows[first:last], first)
            pairs += len(found[-1][0])
            if pairs > PAIRS:
                raise ValueError(
                    f"contamination.shortest: over {PAIRS} pairs of row and item share {n} words; raise it"
                )
            advance(last - first)
    return Overlaps(*(np.concatenate([part[i] for part in found]) for i in range(4)))


def _chunks(rows: Sequence[Text]) -> Iterator[tuple[int, int]]:
    """Bounds of pieces of about CHUNK words, or 6 CHUNK signs; at least one piece."""
    first, size = 0, 0
    for last, row in enumerate(rows):
        if size >= 6 * CHUNK:
            yield first, last
            first, size = last, 0
        size += sum(map(len, row))
    yield first, len(rows)


def _index(items: Sequence[Text], n: int) -> Index:
    vocabulary: dict[str, int] = {}
    for item in items:
        for part in item:
            for word in words(part):
                vocabulary.setdefault(word, len(vocabulary) + 1)
    ids, item, _ = _ids(items, vocabulary)
    hashes, places = _grams(ids, n)
    order = np.argsort(hashes, kind="stable")
    table = np.zeros(1 << BITS, dtype=bool)
    table[_slots(hashes)] = True
    return Index(n, vocabulary, ids, item, hashes[order], places[order], table)


def _ids(texts: Sequence[Text], vocabulary: dict[str, int]) -> tuple[Array, Array, Array]:
    """Words as numbers, a 0 after each part; whose each is; at which word each text begins."""
    ids: list[int] = []
    starts: list[int] = []
    for text in texts:
        starts.append(len(ids))
        for part in text:
            ids.extend(map(vocabulary.get, words(part), repeat(0)))
            ids.append(0)
    lengths = np.diff([*starts, len(ids)])
    return np.array(ids, np.int64), np.repeat(np.arange(len(texts)), lengths), np.array(starts, np.int64)


def _grams(ids: Int64[Array, " words"], n: int) -> tuple[Array, Array]:
    """Hash and place of every n-gram of known words within one part."""
    if len(ids) < n:
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
    unknown = np.concatenate([[0], np.cumsum(ids == 0)])
    places = np.flatnonzero(unknown[n:] == unknown[:-n])
    codes = _mixed(ids.astype(np.uint64))
    hashes = np.zeros(len(places), np.uint64)
    for offset in range(n):
        hashes = hashes * np.uint64(MIX[1]) + codes[places + offset]
    return _mixed(hashes), places


def _mixed(values: UInt64[Array, " x"]) -> UInt64[Array, " x"]:
    """SplitMix64: near values become far ones."""
    values = values * np.uint64(MIX[0])
    for shift, factor in zip((30, 27), MIX[1:], strict=True):
        values = (values ^ (values >> np.uint64(shift))) * np.uint64(factor)
    return values ^ (values >> np.uint64(31))


def _slots(hashes: UInt64[Array, " x"]) -> UInt64[Array, " x"]:
    return hashes >> np.uint64(64 - BITS)


def _chunk(index: Index, rows: Sequence[Text], first: int) -> list[tuple[Any, ...]]:
    """Row, item, longest run and its start of the pairs of some rows, the first of which is row `first`."""
    ids, row, starts = _ids(rows, index.vocabulary)
    place, left, count = _found(index, ids)
    half = len(rows) // 2
    if half and count.sum() > MATCHES:
        return [*_chunk(index, rows[:half], first), *_chunk(index, rows[half:], first + half)]
    place, other = _matches(index, ids, place, left, count)
    order = np.lexsort((place, place - other))  # along the diagonals: one after the other in both
    place, other = place[order], other[order]
    goes_on = (np.diff(place) == 1) & (np.diff(other) == 1)
    begins = np.flatnonzero(np.concatenate([[True], ~goes_on])[: len(place)])
    run = np.diff(begins, append=len(place)) + index.n - 1
    place, of_row, of_item = place[begins], row[place[begins]], index.item[other[begins]]
    order = np.lexsort((place, -run, of_item, of_row))
    place, run, of_row, of_item = place[order], run[order], of_row[order], of_item[order]
    is_new = (np.diff(of_row, prepend=-1) != 0) | (np.diff(of_item, prepend=-1) != 0)
    return [(of_row[is_new] + first, of_item[is_new], run[is_new], (place - starts[of_row])[is_new])]


def _found(index: Index, ids: Int64[Array, " words"]) -> tuple[Array, Array, Array]:
    """Place of each n-gram that may be some item's; where in the index such a one begins, and how many."""
    hashes, place = _grams(ids, index.n)
    likely = index.table[_slots(hashes)]
    left = np.searchsorted(index.hashes, hashes[likely], "left")
    return place[likely], left, np.searchsorted(index.hashes, hashes[likely], "right") - left


def _matches(
    index: Index,
    ids: Int64[Array, " words"],
    place: Int64[Array, " grams"],
    left: Int64[Array, " grams"],
    count: Int64[Array, " grams"],
) -> tuple[Array, Array]:
    """Place in the rows and place in the items of every n-gram that both have."""
    place = np.repeat(place, count)
    within = np.arange(len(place)) - np.repeat(np.cumsum(count) - count, count)
    other = index.places[np.repeat(left, count) + within]
    equal = np.ones(len(place), dtype=bool)  # the words decide, not the hash
    for offset in range(index.n):
        equal &= ids[place + offset] == index.ids[other + offset]
    return place[equal], other[equal]
