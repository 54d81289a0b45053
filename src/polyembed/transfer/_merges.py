"""Learning byte pairs, from characters or from the pieces of a model that is there already."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

LEAST = 2  # a pair that occurs once says nothing


class Merge(NamedTuple):
    """Two neighbouring pieces and what they become."""

    left: str
    right: str
    piece: str


def learn_merges(words: Sequence[tuple[Sequence[str], int]], join: Callable[[str, str], str | None]) -> Iterator[Merge]:
    """Yield merges, the most frequent pair first, and apply each (Sennrich 2016, algorithm 1).

    Of pairs as frequent the first in the order of their strings is merged. It ends where no pair occurs twice.

    Args:
        words: Each word's pieces, and how often the word occurs.
        join: What two pieces become; None if they must stay apart.

    Yields:
        The merges.
    """
    pieces = [list(word) for word, _ in words]
    counts = [count for _, count in words]
    frequency: Counter[tuple[str, str]] = Counter()
    places: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for number, word in enumerate(pieces):
        for pair in pairwise(word):
            frequency[pair] += counts[number]
            places[pair].add(number)
    heap = [(-count, pair) for pair, count in frequency.items()]
    heapq.heapify(heap)
    while heap:
        count, pair = heapq.heappop(heap)
        if -count != frequency[pair]:  # another merge took some of them; new entries stand for the rest
            continue
        if -count < LEAST:
            return
        piece = join(*pair)
        if piece is None:
            continue
        changed: set[tuple[str, str]] = set()
        for number in places.pop(pair):
            before, after = pieces[number], _merge(pieces[number], pair, piece)
            for old in pairwise(before):
                frequency[old] -= counts[number]
            for new in pairwise(after):
                frequency[new] += counts[number]
                places[new].add(number)
            changed.update(pairwise(before), pairwise(after))
            pieces[number] = after
        for other in changed:
            heapq.heappush(heap, (-frequency[other], other))
        yield Merge(*pair, piece)


def _merge(word: list[str], pair: tuple[str, str], piece: str) -> list[str]:
    merged: list[str] = []
    place = 0
    while place < len(word):
        found = tuple(word[place : place + 2]) == pair
        merged.append(piece if found else word[place])
        place += 2 if found else 1
    return merged
