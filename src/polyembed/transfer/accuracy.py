"""How often the nearest word of the other language is a translation (bilingual lexicon induction)."""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from polyembed._checks import check_positive, must, require
from polyembed.functional.neighbors import Nearest, nearest_cosine, nearest_csls
from polyembed.tables import Table
from polyembed.text.error_rate import edit_distance
from polyembed.transfer._space import Space, distinct_pairs, pair_ids, read_spaces
from polyembed.vectors.protocol import WordVectors

CANDIDATES = 20  # nearest words that the spelling reorders


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
    spelling: float = 0.0,
    source_words: Iterable[str] | None = None,
    target_words: Iterable[str] | None = None,
    max_words: int = 200_000,
    device: torch.device | str | None = None,
) -> TranslationAccuracy:
    """Compute the share of words with a right translation among the `k` nearest words of an aligned
    space.

    ``P@k = mean over w of [a translation of w is among the k nearest target words]``, over the
    dictionary's source words that have a vector, and a translation with a vector; ``coverage`` is
    their share.

    With `spelling`, the 20 nearest words are sorted again by
    ``score + spelling * (1 - d / length)``, where ``d`` is the edit distance of the two words
    without their accents and ``length`` that of the longer (Riley and Gildea 2018, section 3.2):
    related languages share words. Choose it on words outside `dictionary`.

    Args:
        source: Vectors of one language in the target's space, ``mapping(source)``.
        target: Vectors of the other.
        dictionary: Pairs of a source word and a target word; several translations of a word are
            several pairs.
        ks: Ranks.
        neighborhood: The ``k`` of `csls`.
        spelling: The weight of similar spelling.
        source_words: The source's words, the most frequent first; ``source.words`` if None.
        target_words: The target's.
        max_words: How many of the most frequent words count, on either side.
        device: Where to compute; the CPU if None.

    Returns:
        Precision by cosine and by CSLS.

    Raises:
        ValueError: Vectors of other lengths or with NaN, or no pair that both vocabularies hold.
        TypeError: A dictionary that is not pairs of words, or ranks that are not a sequence.

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
    if not isinstance(ks, Iterable):
        raise TypeError(must("ks", "be ranks", repr(ks)))
    ks, given = tuple(ks), distinct_pairs(dictionary)
    check_positive(
        **{f"ks[{i}]": k for i, k in enumerate(ks)}, neighborhood=neighborhood, max_words=max_words
    )
    require(len(ks) > 0, "ks", "hold a rank", "none")
    require(spelling >= 0, "spelling", "be 0 or more", spelling)
    one, other = read_spaces(source, target, source_words, target_words, max_words, device)
    ids = pair_ids(given, one, other)
    answers: dict[int, set[int]] = {}
    for row, answer in ids:
        answers.setdefault(row, set()).add(answer)
    queries = one.rows[torch.tensor(list(answers), device=one.rows.device)]
    depth = max(*ks, CANDIDATES) if spelling else max(ks)
    found = (
        nearest_cosine(queries, other.rows, depth),
        nearest_csls(queries, other.rows, depth, neighborhood=neighborhood, space=one.rows),
    )
    ranked = [_ranked(nearest, answers, one, other, spelling) for nearest in found]
    cosine, by_csls = ({k: _precision(ids, answers, k) for k in ks} for ids in ranked)
    num_words = len({word for word, _ in given})
    return TranslationAccuracy(cosine, by_csls, len(answers), num_words, len(given) - len(ids))


def _ranked(
    nearest: Nearest, answers: dict[int, set[int]], one: Space, other: Space, spelling: float
) -> list[list[int]]:
    """Return the rows found for each query, sorted again by spelling."""
    ranked = nearest.ids.tolist()
    if not spelling:
        return ranked
    for row, ids, scores in zip(answers, ranked, nearest.scores.tolist(), strict=True):
        word = one.words[row]
        likeness = [_spelling_similarity(word, other.words[i]) for i in ids[:CANDIDATES]]
        order = sorted(range(len(likeness)), key=lambda i: -scores[i] - spelling * likeness[i])
        ids[:CANDIDATES] = [ids[i] for i in order]
    return ranked


def _spelling_similarity(a: str, b: str) -> float:
    """Return ``1 - d(a, b) / max(|a|, |b|)`` of the edit distance without accents and case."""
    a, b = (
        "".join(
            c for c in unicodedata.normalize("NFD", word.lower()) if not unicodedata.combining(c)
        )
        for word in (a, b)
    )
    return 1 - edit_distance(a, b) / max(len(a), len(b), 1)


def _precision(ranked: list[list[int]], answers: dict[int, set[int]], k: int) -> float:
    hits = (
        not right.isdisjoint(ids[:k]) for ids, right in zip(ranked, answers.values(), strict=True)
    )
    return sum(hits) / len(answers)
