"""Align one space of word vectors with another: from a dictionary, from equal strings, or without
any pairs.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from polyembed._checks import (
    check_choice,
    check_positive,
    check_sentences,
    check_words,
    must,
    require,
)
from polyembed.functional.alignment import length_normalize, procrustes
from polyembed.functional.neighbors import Nearest, mutual_csls, nearest_cosine, nearest_csls
from polyembed.tables import Table
from polyembed.transfer.adversarial import (
    AdversarialOptions,
    adversarial_mapping,
    mapping_criterion,
)
from polyembed.vectors.mapped import OrthogonalMapping
from polyembed.vectors.protocol import WordVectors
from polyembed.vectors.words import as_source

Words = Iterable[str] | None


class Space(NamedTuple):
    """Words that have a vector, the most frequent first.

    Attributes:
        rows: The vectors of the words, float32, ``(word, dim)``.
        ids: The row of each word.
        num_empty: The number of words that were left out because their vector is zero.
    """

    rows: Tensor
    ids: dict[str, int]
    num_empty: int


def read_spaces(
    source: WordVectors,
    target: WordVectors,
    source_words: Words,
    target_words: Words,
    max_words: int,
    device: torch.device | str | None,
) -> tuple[Space, Space]:
    """Read the vectors of the most frequent words of both sources."""
    found = []
    for name, vectors, words in (
        ("source", source, source_words),
        ("target", target, target_words),
    ):
        vectors = as_source(vectors, name=name)
        own: Iterable[str] = getattr(vectors, "words", ())
        own = own if words is None else check_words(words, name=f"{name}_words")
        chosen = list(islice(dict.fromkeys(own), max_words))
        require(bool(chosen), f"{name}_words", f"be given where {name} lists no words", "none")
        rows = np.asarray(vectors.vectors(chosen), np.float32)
        for row in np.flatnonzero(~np.isfinite(rows).all(1)):
            place = f"the vector of {chosen[row]!r} in {name}"
            raise ValueError(must(place, "be finite", rows[row]))
        valid = np.flatnonzero(rows.any(1))
        got = f"{len(chosen)} words, none with a vector"
        require(len(valid) > 0, name, "hold a word with a vector", got)
        ids = {chosen[row]: i for i, row in enumerate(valid)}
        found.append(Space(torch.from_numpy(rows[valid]).to(device), ids, len(chosen) - len(ids)))
    dims = [space.rows.shape[1] for space in found]
    require(dims[0] == dims[1], "source and target", "have vectors of one length", dims)
    return found[0], found[1]


def distinct_pairs(dictionary: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Check the pairs of a source word and a target word, and leave repetitions out."""
    pairs = check_sentences(dictionary, name="dictionary")
    for i, pair in enumerate(pairs):
        require(len(pair) == 2, f"dictionary[{i}]", "be a source word and a target word", pair)
    return [(one, other) for one, other in dict.fromkeys(map(tuple, pairs))]


def pair_ids(
    pairs: Sequence[tuple[str, str]], source: Space, target: Space
) -> list[tuple[int, int]]:
    """Return the rows of the pairs whose words both spaces have; without such a pair, raise."""
    found = [
        (source.ids[one], target.ids[other])
        for one, other in pairs
        if one in source.ids and other in target.ids
    ]
    got = f"{len(pairs)} pairs, none of them known"
    require(bool(found), "dictionary", "hold a pair of words that both vocabularies have", got)
    return found


REFINE_WORDS = 15_000  # the most frequent words, in which a refinement finds its pairs
SIMILARITY_WORDS = 4_000  # the same for distributions of similarities
STEPS: dict[str, Callable[[Tensor], Tensor]] = {
    "length": length_normalize,
    "center": lambda x: x - x.mean(0),
}

Dictionary = Literal["identical", "similarity"] | Sequence[tuple[str, str]]


def align_spaces(
    source: WordVectors,
    target: WordVectors,
    *,
    dictionary: Dictionary | None = None,
    refine: int = 5,
    normalize: Sequence[Literal["length", "center"]] = ("length",),
    neighborhood: int = 10,
    source_words: Iterable[str] | None = None,
    target_words: Iterable[str] | None = None,
    max_words: int = 200_000,
    device: torch.device | str | None = None,
    adversarial: AdversarialOptions | None = None,
) -> OrthogonalMapping:
    """Compute the rotation from the source's space to the target's (Winata 2021, section 2.1.2;
    Lample 2018).

    A first mapping is refined: the pairs of words that are mutually nearest by CSLS under a mapping
    give the next one by `procrustes`. The mapping with the highest mean cosine of mutual
    neighbours, the first one included, is returned. The first mapping comes from

    - pairs of words, by `procrustes`;
    - ``"identical"``: the words that both vocabularies hold;
    - ``"similarity"``: the words whose similarities to the words of their own language have similar
      distributions (Artetxe 2018); a rough guess, so refine 10 times or more;
    - None: no pairs, by adversarial training, as in Winata 2021.

    Args:
        source: The vectors of one language.
        target: The vectors of the other language, of the same length.
        dictionary: The origin of the first mapping. Pairs whose words are not both in the
            vocabularies are left out; ``report`` of the mapping counts them.
        refine: The number of refinements.
        normalize: The steps that normalise both spaces, in this order, before they are compared.
            The adversarial stage and the returned mapping take vectors without these steps.
        neighborhood: The ``k`` of `csls`.
        source_words: The source's words, the most frequent first, repetitions ignored;
            ``source.words`` if None.
        target_words: The target's words, in the same way.
        max_words: The number of the most frequent words that count, on either side.
        device: The device to compute on; the CPU if None.
        adversarial: The options of adversarial training, used without a dictionary.

    Returns:
        A mapping with ``mapping(source)`` in the target's space, and ``mapping.inverse()`` from the
        target's into the source's. Its ``report`` has: ``dictionary``, the origin of the first
        mapping; ``num_pairs``, the number of its pairs, each counted once; ``num_dropped``, the
        number of pairs of the dictionary with a word that has no vector; ``num_empty``, the number
        of words of both vocabularies whose vector is zero; ``criteria``, the criteria of the first
        mapping and of each refinement; ``restarts``, the criteria of the adversarial stage.

    Raises:
        ValueError: If vectors have different lengths or are not finite; if a vocabulary has no word
            with a vector; if no pair is in both vocabularies; if a step is unknown; or if a number
            is too small.
        TypeError: If the dictionary is not pairs of words, words or steps are of another kind, or
            adversarial options come with a dictionary.

    Example:
        >>> class Vectors:
        ...     dim = 2
        ...     def __init__(self, **rows): self.rows, self.words = rows, list(rows)
        ...     def vectors(self, words): return np.float32([self.rows[word] for word in words])
        >>> es, en = Vectors(sol=(1, 0), luna=(0, 1), mar=(2, 1)), Vectors(sun=(0, 1), moon=(-1,
        ...     0), sea=(-1, 2))
        >>> mapping = align_spaces(es, en, dictionary=[("sol", "sun"), ("mar", "sea"), ("rey",
        ...     "king")])
        >>> mapping(es).vectors(["luna"]).round(4) + 0
        array([[-1.,  0.]], dtype=float32)
        >>> mapping.report["num_pairs"], mapping.report["num_dropped"]
        (2, 1)

    Deviations: the best mapping is chosen by the mean cosine of mutual neighbours; MUSE chooses by
    its validation metric. MUSE does not normalise by default; here vectors have length 1 by
    default. ``"similarity"`` is vecmap's start with plain refinements, without its random
    omissions.
    """
    check_positive(neighborhood=neighborhood, max_words=max_words)
    require(refine >= 0, "refine", "be 0 or more", refine)
    for step in normalize:
        check_choice("normalize", step, STEPS)
    if dictionary is not None and adversarial is not None:
        raise TypeError(must("adversarial options", "come without a dictionary", adversarial))
    if isinstance(dictionary, str):
        check_choice("dictionary", dictionary, ("identical", "similarity"))
    elif dictionary is not None:
        dictionary = distinct_pairs(dictionary)
    with torch.inference_mode(False), torch.enable_grad():  # the adversarial stage learns
        one, other = read_spaces(source, target, source_words, target_words, max_words, device)
        with torch.autocast(one.rows.device.type, enabled=False):
            x, y = _normalize(one.rows, normalize), _normalize(other.rows, normalize)
            report: dict[str, Any] = {"num_empty": one.num_empty + other.num_empty}
            if dictionary is None:
                options = adversarial or AdversarialOptions()
                weight, restarts = adversarial_mapping(one.rows, other.rows, options)
                report |= {"dictionary": "adversarial", "restarts": restarts}
            else:
                name = dictionary if isinstance(dictionary, str) else "pairs"
                if name == "similarity":
                    pairs, dropped = similarity_pairs(x, y, neighborhood=neighborhood), 0
                else:
                    same = [(word, word) for word in one.ids if word in other.ids]
                    given = same if isinstance(dictionary, str) else dictionary
                    pairs = torch.tensor(pair_ids(given, one, other), device=x.device)
                    dropped = len(given) - len(pairs)
                weight = procrustes(x[pairs[:, 0]], y[pairs[:, 1]])
                report |= {"dictionary": name, "num_pairs": len(pairs), "num_dropped": dropped}
            weight, criteria = _refine(x, y, weight, refine, neighborhood)
        return OrthogonalMapping(weight, report={**report, "criteria": criteria})


def similarity_pairs(x: Tensor, y: Tensor, *, neighborhood: int) -> Tensor:
    """Pair the most frequent words by the distributions of their similarities to words of their own
    language (Artetxe 2018, section 3.2).

    The rows of ``sqrt(x x')``, each sorted, do not depend on the axes of a space, so that words of
    both languages can be compared by them. They are normalised (length, mean, length) and paired by
    CSLS from both sides. Most pairs are wrong; there are enough right ones to refine from.
    """
    count = min(SIMILARITY_WORDS, len(x), len(y))
    profiles = []
    for rows in (x[:count], y[:count]):
        u, s, _ = torch.linalg.svd(rows.double(), full_matrices=False)
        profile = ((u * s) @ u.mT).sort(1).values.to(rows.dtype)
        profiles.append(_normalize(profile, ("length", "center", "length")))
    return mutual_csls(*profiles, neighborhood=neighborhood)


def _normalize(x: Tensor, steps: Sequence[str]) -> Tensor:
    for step in steps:
        x = STEPS[step](x)
    return x


def _refine(
    x: Tensor, y: Tensor, weight: Tensor, refine: int, neighborhood: int
) -> tuple[Tensor, list[float]]:
    """Refine a mapping; return the best by the criterion, and the criterion of each."""
    best, criteria = weight, [mapping_criterion(x @ weight, y, neighborhood=neighborhood)]
    for _ in range(refine):
        pairs = mutual_csls(x[:REFINE_WORDS] @ weight, y[:REFINE_WORDS], neighborhood=neighborhood)
        weight = procrustes(x[pairs[:, 0]], y[pairs[:, 1]])
        score = mapping_criterion(x @ weight, y, neighborhood=neighborhood)
        best = weight if score > max(criteria) else best
        criteria.append(score)
    return best, criteria


class TranslationAccuracy(NamedTuple):
    """Precision at several ranks.

    Attributes:
        cosine: The precision by rank k: the share of words with a translation among the k nearest
            words by cosine.
        csls: The precision by rank k, with the nearest words by CSLS.
        num_queries: The number of source words with a translation to find.
        num_words: The number of source words of the dictionary, with and without vectors.
        num_dropped: The number of distinct pairs of the dictionary with a word that has no vector.
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
        source: The vectors of one language in the target's space, ``mapping(source)``.
        target: The vectors of the other language.
        dictionary: Pairs of a source word and a target word; several translations of a word are
            several pairs.
        ks: The ranks k.
        neighborhood: The number of neighbours of CSLS.
        source_words: The source's words, the most frequent first; ``source.words`` if None.
        target_words: The target's words, in the same way.
        max_words: The number of the most frequent words that count, on either side.
        device: The device to compute on; the CPU if None.

    Returns:
        The precision by cosine and by CSLS.

    Raises:
        ValueError: If vectors have different lengths or are not finite; if a vocabulary has no word
            with a vector; or if no pair is in both vocabularies.

    Example:
        >>> class Vectors:
        ...     dim = 2
        ...     def __init__(self, **rows): self.rows, self.words = rows, list(rows)
        ...     def vectors(self, words): return np.float32([self.rows[word] for word in words])
        >>> es, en = Vectors(sol=(1, 0), luna=(0, 1)), Vectors(sun=(2, 1), moon=(0, 2), night=(1,
        ...     2))
        >>> pairs = [("sol", "sun"), ("luna", "night"), ("mar", "sea")]
        >>> translation_accuracy(es, en, pairs, ks=(1, 2)).cosine
        {1: 0.5, 2: 1.0}
    """
    given = distinct_pairs(dictionary)
    check_positive(neighborhood=neighborhood, max_words=max_words)
    check_positive(**{f"ks[{i}]": k for i, k in enumerate(ks)})
    one, other = read_spaces(source, target, source_words, target_words, max_words, device)
    ids = pair_ids(given, one, other)
    answers: dict[int, set[int]] = {}
    for row, answer in ids:
        answers.setdefault(row, set()).add(answer)
    queries = one.rows[torch.tensor(list(answers), device=one.rows.device)]

    def precision(nearest: Nearest) -> dict[int, float]:
        ranked = list(zip(nearest.ids.tolist(), answers.values(), strict=True))
        return {
            k: sum(not right.isdisjoint(found[:k]) for found, right in ranked) / len(ranked)
            for k in ks
        }

    return TranslationAccuracy(
        precision(nearest_cosine(queries, other.rows, max(ks))),
        precision(
            nearest_csls(queries, other.rows, max(ks), neighborhood=neighborhood, space=one.rows)
        ),
        num_queries=len(answers),
        num_words=len({word for word, _ in given}),
        num_dropped=len(given) - len(ids),
    )
