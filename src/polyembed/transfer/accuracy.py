"""How often the nearest word of the other language is a translation (bilingual lexicon induction)."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from polyembed._checks import check_positive, require
from polyembed.functional.neighbors import nearest_cosine, nearest_csls
from polyembed.tables import Table
from polyembed.transfer._space import distinct_pairs, pair_ids, read_spaces
from polyembed.vectors.protocol import WordVectors


class TranslationAccuracy(NamedTuple):
    """Precision at several ranks.

    Attributes:
        cosine: Rank -> the share of words with a translation among so many nearest, by cosine.
        csls: The same by CSLS.
        num_queries: Source words with a translation to find.
        num_words: Source words of the dictionary, with and without vectors.
        num_dropped: Distinct pairs of the dictionary with a word that has no vector.
    """

    cosine: dict[int, float]
    csls: dict[int, float]
    num_queries: int
    num_words: int
    num_dropped: int

    @property
    def coverage(self) -> float:
        """The share of the dictionary's source words that were looked for."""
        return self.num_queries / self.num_words

    def table(self) -> Table:
        """Return a table with one row per measure of similarity, precision in percent."""
        columns = ("retrieval", *(f"P@{k}" for k in self.cosine), "words", "coverage")
        end = (self.num_queries, f"{100 * self.coverage:.1f} %")
        rows = [
            (name, *(100 * share for share in shares.values()), *end)
            for name, shares in (("cosine", self.cosine), ("CSLS", self.csls))
        ]
        return Table(columns, rows)


def translation_accuracy(
    source: WordVectors,
    target: WordVectors,
    dictionary: Sequence[tuple[str, str]],
    *,
    ks: Sequence[int] = (1, 5, 10),
    neighborhood: int = 10,
    source_words: Iterable[str] | None = None,
    target_words: Iterable[str] | None = None,
    max_words: int = 200_000,
    device: torch.device | str | None = None,
) -> TranslationAccuracy:
    """Compute the precision at k of word translation in an aligned space.

    ``P@k = mean over w of [a translation of w is among the k nearest target words]``, over the
    dictionary's source words that have a vector, and a translation with a vector; ``coverage`` is
    their share.

    Args:
        source: Vectors of one language in the target's space, ``mapping(source)``.
        target: Vectors of the other.
        dictionary: Pairs of a source word and a target word; several translations of a word are
            several pairs.
        ks: The ranks k.
        neighborhood: The number of neighbours of CSLS.
        source_words: The source's words, the most frequent first; ``source.words`` if None.
        target_words: The target's.
        max_words: The number of the most frequent words that count, on either side.
        device: The device to compute on; the CPU if None.

    Returns:
        Precision by cosine and by CSLS.

    Raises:
        ValueError: If vectors have different lengths or NaN, or no pair is in both vocabularies.

    Example:
        >>> class Vectors:
        ...     dim = 2
        ...     def __init__(self, **rows): self.rows, self.words = rows, list(rows)
        ...     def vectors(self, words): return np.float32([self.rows[word] for word in words])
        >>> es, en = Vectors(sol=(1, 0), luna=(0, 1)), Vectors(sun=(2, 1), moon=(0, 2), night=(1, 2))
        >>> pairs = [("sol", "sun"), ("luna", "night"), ("mar", "sea")]
        >>> translation_accuracy(es, en, pairs, ks=(1, 2)).cosine
        {1: 0.5, 2: 1.0}
    """
    ks, given = tuple(ks), distinct_pairs(dictionary)
    require(len(ks) > 0, "ks", "hold a rank", "none")
    ranks = {f"ks[{i}]": k for i, k in enumerate(ks)}
    check_positive(**ranks, neighborhood=neighborhood, max_words=max_words)
    one, other = read_spaces(source, target, source_words, target_words, max_words, device)
    ids = pair_ids(given, one, other)
    answers: dict[int, set[int]] = {}
    for row, answer in ids:
        answers.setdefault(row, set()).add(answer)
    queries = one.rows[torch.tensor(list(answers), device=one.rows.device)]
    found = (
        nearest_cosine(queries, other.rows, max(ks)),
        nearest_csls(queries, other.rows, max(ks), neighborhood=neighborhood, space=one.rows),
    )
    cosine, by_csls = (
        {k: _precision(nearest.ids.tolist(), answers, k) for k in ks} for nearest in found
    )
    num_words = len({word for word, _ in given})
    return TranslationAccuracy(cosine, by_csls, len(answers), num_words, len(given) - len(ids))


def _precision(ranked: list[list[int]], answers: dict[int, set[int]], k: int) -> float:
    hits = (
        not right.isdisjoint(ids[:k]) for ids, right in zip(ranked, answers.values(), strict=True)
    )
    return sum(hits) / len(answers)
