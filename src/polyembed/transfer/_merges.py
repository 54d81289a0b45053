"""Learning byte pairs, from characters or from the pieces of an existing model."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

LEAST = 2  # occurrences of a pair that is merged


def learn_merges(
    words: Sequence[tuple[Sequence[str], int]], join: Callable[[str, str], str | None]
) -> Iterator[tuple[str, str, str]]:
    """Yield merges, the most frequent pair first, and apply each (Sennrich 2016, algorithm 1).

    Pairs of the same frequency are merged in the order of their strings. It ends where no pair
    occurs twice.

    Args:
        words: Each word's pieces, and how often the word occurs.
        join: Returns the piece that two pieces become; None if they must not be merged.

    Yields:
        Left piece, right piece, and the piece that they become.
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
        if -count != frequency[pair]:  # outdated: a newer entry has the present count
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
        yield *pair, piece


def _merge(word: list[str], pair: tuple[str, str], piece: str) -> list[str]:
    merged: list[str] = []
    place = 0
    while place < len(word):
        found = tuple(word[place : place + 2]) == pair
        merged.append(piece if found else word[place])
        place += 2 if found else 1
    return merged
