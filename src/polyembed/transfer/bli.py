"""Bilingual lexicon induction: how often the nearest word of the other language is a translation."""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from polyembed._checks import check_positive, must, require
from polyembed.functional.alignment import Nearest, nearest_cosine, nearest_csls
from polyembed.tables import Table
from polyembed.text.error_rate import edit_distance
from polyembed.transfer._spaces import Space, distinct_pairs, none_known, pair_ids, read_space
from polyembed.vectors.protocol import WordVectors

CANDIDATES = 20  # nearest words, among which the spelling may choose


class BLIResult(NamedTuple):
    """Precision at several ranks.

    Attributes:
        cosine: Rank to the share of words with a translation among so many nearest, by cosine.
        csls: The same by CSLS.
        num_queries: Source words with a translation to find.
        num_words: Source words of the dictionary, findable or not.
        num_dropped: Pairs of the dictionary, each counted once, that were left out, since a vocabulary lacks a word
            of theirs or the word's vector is zero.

    Deviations: none.
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
        """Set the result out.

        Returns:
            One row a way of searching; precision in percent.
        """
        columns = ("retrieval", *(f"P@{k}" for k in self.cosine), "words", "coverage")
        end = (self.num_queries, f"{100 * self.coverage:.1f} %")
        rows = [
            (name, *(100 * share for share in shares.values()), *end)
            for name, shares in (("cosine", self.cosine), ("CSLS", self.csls))
        ]
        return Table(columns, rows)


def bli(
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
) -> BLIResult:
    """Look words up across two aligned spaces: the share with a right translation among the `k` nearest.

    ``P@k = mean over w of [a translation of w is among the k nearest target words]``, over the dictionary's source
    words of which the source has a vector, and the target that of one translation at least; ``coverage`` says how
    many those are.

    With `spelling`, the 20 nearest words are put in a new order by ``score + spelling * (1 - d / length)``, where
    ``d`` is the edit distance of the two words without their accents and ``length`` that of the longer (Riley and
    Gildea 2018, section 3.2): related languages share words. Choose it on other words than those of `dictionary`.

    Args:
        source: Vectors of one language in the target's space, ``mapping(source)``.
        target: Vectors of the other.
        dictionary: Pairs of a source word and a target word; several translations of a word are several pairs.
        ks: Ranks.
        neighborhood: The ``k`` of `csls`.
        spelling: How much likeness in spelling counts; 0: nothing.
        source_words: The source's words, the most frequent first; ``source.words`` if None.
        target_words: The target's.
        max_words: How many of the most frequent words count, on either side.
        device: Where to compute; the CPU if None.

    Returns:
        Precision by cosine and by CSLS.

    Raises:
        ValueError: Vectors of other lengths or with NaN, or no pair that both vocabularies hold.
        TypeError: A dictionary that is no pairs of words, or ranks that are no sequence.

    Example:
        >>> class Vectors:
        ...     dim = 2
        ...     def __init__(self, **rows): self.rows, self.words = rows, list(rows)
        ...     def vectors(self, words): return np.float32([self.rows[word] for word in words])
        >>> es, en = Vectors(sol=(1, 0), luna=(0, 1)), Vectors(sun=(2, 1), moon=(0, 2), night=(1, 2))
        >>> bli(es, en, [("sol", "sun"), ("luna", "night"), ("mar", "sea")], ks=(1, 2)).cosine
        {1: 0.5, 2: 1.0}

    Deviations: none.
    """
    if not isinstance(ks, Iterable):
        raise TypeError(must("ks", "be ranks", repr(ks)))
    ks, given = tuple(ks), distinct_pairs(dictionary)
    check_positive(**{f"ks[{i}]": k for i, k in enumerate(ks)}, neighborhood=neighborhood, max_words=max_words)
    require(len(ks) > 0, "ks", "hold a rank", "none")
    require(spelling >= 0, "spelling", "be 0 or more", spelling)
    one = read_space("source", source, source_words, max_words, device)
    other = read_space("target", target, target_words, max_words, device)
    dims = (one.rows.shape[1], other.rows.shape[1])
    require(dims[0] == dims[1], "source and target", "have vectors of one length", f"{dims[0]} and {dims[1]}")
    ids = pair_ids(given, one, other)
    if not ids:
        raise none_known(len(given))
    answers: dict[int, set[int]] = {}
    for row, answer in ids:
        answers.setdefault(row, set()).add(answer)
    queries = one.rows[torch.tensor(list(answers), device=one.rows.device)]
    depth = max(*ks, CANDIDATES) if spelling else max(ks)
    found = (
        nearest_cosine(queries, other.rows, depth),
        nearest_csls(queries, other.rows, depth, neighborhood=neighborhood, space=one.rows),
    )
    cosine, by_csls = (_precision(_ranked(nearest, answers, one, other, spelling), answers, ks) for nearest in found)
    num_words = len({word for word, _ in given})
    return BLIResult(cosine, by_csls, len(answers), num_words, len(given) - len(ids))


def _ranked(
    nearest: Nearest, answers: dict[int, set[int]], one: Space, other: Space, spelling: float
) -> list[list[int]]:
    """Give the rows found for each query, in the order that the spelling leaves them in."""
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
    """Compare two words letter by letter: ``1 - d(a, b) / max(|a|, |b|)``, accents and case left out."""
    a, b = (
        "".join(c for c in unicodedata.normalize("NFD", word.lower()) if not unicodedata.combining(c))
        for word in (a, b)
    )
    return 1 - edit_distance(a, b) / max(len(a), len(b), 1)


def _precision(ranked: list[list[int]], answers: dict[int, set[int]], ks: Sequence[int]) -> dict[int, float]:
    return {
        k: sum(not right.isdisjoint(ids[:k]) for ids, right in zip(ranked, answers.values(), strict=True))
        / len(answers)
        for k in ks
    }
