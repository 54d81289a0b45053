"""Align one space of word vectors with another: from a dictionary, from equal strings, or without
any pairs.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyembed._checks import (
    check_choice,
    check_dim,
    check_float,
    check_positive,
    class_name,
    is_count,
    must,
    require,
)
from polyembed.functional.alignment import length_normalize, mean_center, procrustes
from polyembed.functional.neighbors import mutual_csls, nearest_cosine, nearest_csls
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
        words: The words, each once.
        rows: Their vectors, float32, ``(word, dim)``.
        ids: The row of each word.
        num_empty: How many words were left out because their vector is zero.
    """

    words: list[str]
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
    one = _read_space("source", source, source_words, max_words, device)
    other = _read_space("target", target, target_words, max_words, device)
    dims = (one.rows.shape[1], other.rows.shape[1])
    require(
        dims[0] == dims[1],
        "source and target",
        "have vectors of one length",
        f"{dims[0]} and {dims[1]}",
    )
    return one, other


def _read_space(
    name: str, vectors: WordVectors, words: Words, max_words: int, device: torch.device | str | None
) -> Space:
    vectors = as_source(vectors, name=name)
    if isinstance(words, str) or not (words is None or isinstance(words, Iterable)):
        got = f"the string {words!r}" if isinstance(words, str) else class_name(words)
        raise TypeError(must(f"{name}_words", "be words", got))
    own: Iterable[str] = getattr(vectors, "words", ()) if words is None else words
    chosen = list(islice(dict.fromkeys(own), max_words))
    rule = f"be given where {name} lists no words" if words is None else "hold a word"
    require(
        len(chosen) > 0, f"{name}_words", rule, class_name(vectors) if words is None else "none"
    )
    for word in chosen:
        if not isinstance(word, str):
            raise TypeError(must(f"{name}_words", "be strings", repr(word)))
    rows = np.asarray(vectors.vectors(chosen), np.float32)
    require(
        rows.shape == (len(chosen), vectors.dim),
        f"{name}.vectors",
        "give one row a word",
        f"shape {rows.shape}",
    )
    for row in np.flatnonzero(~np.isfinite(rows).all(1)):
        raise ValueError(
            must(f"the vector of {chosen[row]!r} in {name}", "be finite", "NaN or an infinity")
        )
    valid = np.flatnonzero(rows.any(1))
    require(
        len(valid) > 0,
        name,
        "hold a word with a vector",
        f"{len(chosen)} words, none with a vector",
    )
    kept = [chosen[row] for row in valid]
    ids = {word: i for i, word in enumerate(kept)}
    return Space(kept, torch.from_numpy(rows[valid]).to(device), ids, len(chosen) - len(kept))


def distinct_pairs(dictionary: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Check the pairs of a source word and a target word, and leave repetitions out."""
    if isinstance(dictionary, str | Mapping) or not isinstance(dictionary, Iterable):
        got = (
            f"the string {dictionary!r}" if isinstance(dictionary, str) else class_name(dictionary)
        )
        raise TypeError(must("dictionary", "be pairs of words", got))
    found: dict[tuple[str, str], None] = {}
    for i, pair in enumerate(dictionary):
        words = tuple(pair) if isinstance(pair, Iterable) and not isinstance(pair, str) else ()
        if len(words) != 2 or not all(isinstance(word, str) for word in words):
            raise TypeError(
                must(f"dictionary[{i}]", "be a source word and a target word", repr(pair))
            )
        found[words] = None
    return list(found)


def pair_ids(
    pairs: Iterable[tuple[str, str]], source: Space, target: Space
) -> list[tuple[int, int]]:
    """Return the rows of each pair of words that both spaces have; at least one, or raise."""
    pairs = list(pairs)
    ids = ((source.ids.get(one), target.ids.get(other)) for one, other in pairs)
    found = [(one, other) for one, other in ids if one is not None and other is not None]
    got = f"{len(pairs)} pairs, all with an unknown word" if pairs else "no pair"
    require(len(found) > 0, "dictionary", "hold a pair of words that both vocabularies have", got)
    return found


REFINE_WORDS = 15_000  # the most frequent words, among which a refinement looks for pairs
SIMILARITY_WORDS = 4_000  # the same for distributions of similarities
STEPS = {"length": length_normalize, "center": mean_center}

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
    give the next one by `procrustes`. The mapping with the best `mapping_criterion`, the first one
    included, is returned. The first one comes from

    - pairs of words, by `procrustes`;
    - ``"identical"``: the words that both vocabularies hold;
    - ``"similarity"``: the words whose similarities to the words of their own language have like
      distributions (Artetxe 2018); a rough guess, so refine 10 times or more;
    - None: no pairs, by `adversarial_mapping`, as in Winata 2021.

    Args:
        source: Vectors of one language.
        target: Vectors of the other, of the same length.
        dictionary: Where the first mapping comes from. Pairs whose words are not both in the
            vocabularies are left out; ``report`` of the mapping counts them.
        refine: The number of refinements.
        normalize: What is done to both spaces, in this order, before they are compared. The
            adversarial stage takes the vectors without it, and the returned mapping applies to
            vectors without it.
        neighborhood: The ``k`` of `csls`.
        source_words: The source's words, the most frequent first, repetitions ignored;
            ``source.words`` if None.
        target_words: The target's.
        max_words: How many of the most frequent words count.
        device: Where to compute; the CPU if None.
        adversarial: Options of `adversarial_mapping`, used without a dictionary.

    Returns:
        A mapping with ``mapping(source)`` in the target's space, and ``mapping.inverse()`` from the
        target's into the source's. Its ``report`` has: ``dictionary``, the origin of the first
        mapping; ``num_pairs``, its pairs, each once; ``num_dropped``, the pairs of the dictionary
        with a word that has no vector; ``num_empty``, the words of both vocabularies whose vector
        is zero; ``criteria``, of the first mapping and of each refinement; ``restarts``, the
        criteria of the adversarial stage.

    Raises:
        ValueError: If vectors have other lengths or NaN, there are no words, both vocabularies have
            no pair in common, or a step is unknown.
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

    Deviations: the best mapping is the best by `mapping_criterion`, the mean cosine of mutual
    neighbours; MUSE chooses by a validation metric of its own. MUSE does not normalise by default;
    here vectors have length 1 by default, which is better on the Spanish-English vectors of
    docs/results/alignment.md. ``"similarity"`` is vecmap's start with plain refinements, without
    its random omissions.
    """
    check_positive(neighborhood=neighborhood, max_words=max_words)
    require(is_count(refine) and refine >= 0, "refine", "be a number of refinements", repr(refine))
    if isinstance(normalize, str) or not isinstance(normalize, Iterable):
        raise TypeError(must("normalize", "be a sequence of steps", repr(normalize)))
    normalize = tuple(normalize)
    for step in normalize:
        check_choice("normalize", step, STEPS)
    if dictionary is not None and adversarial is not None:
        raise TypeError(must("adversarial options", "come without a dictionary", adversarial))
    if isinstance(dictionary, str):
        check_choice("dictionary", dictionary, ("identical", "similarity"))
    elif dictionary is not None:
        dictionary = distinct_pairs(dictionary)
    one, other = read_spaces(source, target, source_words, target_words, max_words, device)
    with torch.autocast(one.rows.device.type, enabled=False):
        x, y = _normalize(one.rows, normalize), _normalize(other.rows, normalize)
        report: dict[str, Any] = {"num_empty": one.num_empty + other.num_empty}
        if dictionary is None:
            found = adversarial_mapping(one.rows, other.rows, adversarial)
            weight = found.weight
            report |= {"dictionary": "adversarial", "restarts": found.criteria}
        else:
            pairs, num_dropped = _pairs(dictionary, one, other, x, y, neighborhood)
            weight = procrustes(x[pairs[:, 0]], y[pairs[:, 1]])
            name = dictionary if isinstance(dictionary, str) else "pairs"
            report |= {"dictionary": name, "num_pairs": len(pairs), "num_dropped": num_dropped}
        weight, criteria = _refine(x, y, weight, refine, neighborhood)
    return OrthogonalMapping(weight, report={**report, "criteria": criteria})


def similarity_pairs(
    x: Float[Tensor, "n dim"],
    y: Float[Tensor, "m other"],
    *,
    num_words: int = SIMILARITY_WORDS,
    neighborhood: int = 10,
) -> Int[Tensor, "pair 2"]:
    """Pair words by how their similarities to their own language's words are distributed (Artetxe
    2018, section 3.2).

    The rows of ``sqrt(x x')``, each sorted, do not depend on the axes of a space, so that words of
    both languages can be compared by them. They are normalised (length, mean, length) and paired by
    CSLS from both sides.

    Args:
        x: Vectors, ``(n, dim)``, the most frequent word first.
        y: Vectors of any length, ``(m, other)``, likewise.
        num_words: How many words of either language are compared.
        neighborhood: The ``k`` of `csls`.

    Returns:
        Rows of `x` and of `y`, ``(pair, 2)``. Most are wrong; there are enough right ones to refine
        from.

    Raises:
        ValueError: If shapes do not fit, or a number is NaN or infinite.
        TypeError: If vectors are not floating point.

    Example:
        >>> x = torch.tensor([[1.0, 0.1], [0.2, 1.0], [3.0, 1.0], [-1.0, 0.5]])
        >>> turned = x.flip(0) @ torch.tensor([[0.0, 1.0], [-1.0, 0.0]])  # in another order, too
        >>> similarity_pairs(x, turned).tolist()
        [[0, 3], [1, 2], [2, 1], [3, 0]]
    """
    check_dim("x", x, 2, "n, dim")
    check_dim("y", y, 2, "m, other")
    check_positive(num_words=num_words, neighborhood=neighborhood)
    check_float(x=x, y=y)
    count = min(num_words, len(x), len(y))
    for name, rows in (("x", x[:count]), ("y", y[:count])):
        require(bool(rows.isfinite().all()), name, "be finite", "NaN or an infinity")
    one, other = _sorted_similarities(x[:count]), _sorted_similarities(y[:count])
    return mutual_csls(one, other, neighborhood=neighborhood)


def _sorted_similarities(x: Tensor) -> Tensor:
    u, s, _ = torch.linalg.svd(x.double(), full_matrices=False)
    profile = ((u * s) @ u.mT).sort(1).values.to(torch.promote_types(x.dtype, torch.float32))
    return _normalize(profile, ("length", "center", "length"))


def _normalize(x: Tensor, steps: Sequence[str]) -> Tensor:
    for step in steps:
        x = STEPS[step](x)
    return x


def _pairs(
    dictionary: Dictionary, one: Space, other: Space, x: Tensor, y: Tensor, neighborhood: int
) -> tuple[Tensor, int]:
    """Return the rows of the first pairs, and how many pairs were left out."""
    if dictionary == "similarity":
        return similarity_pairs(x, y, neighborhood=neighborhood), 0
    if isinstance(dictionary, str):
        dictionary = [(word, word) for word in one.words if word in other.ids]
    ids = pair_ids(dictionary, one, other)
    return torch.tensor(ids, device=x.device), len(dictionary) - len(ids)


def _refine(
    x: Tensor, y: Tensor, weight: Tensor, refine: int, neighborhood: int
) -> tuple[Tensor, list[float]]:
    """Refine a mapping; return the best by the criterion, and the criterion of each."""
    best, criteria = weight, [mapping_criterion(x @ weight, y, neighborhood=neighborhood)]
    for _ in range(refine):
        pairs = mutual_csls(x[:REFINE_WORDS] @ weight, y[:REFINE_WORDS], neighborhood=neighborhood)
        if not len(pairs):
            break
        weight = procrustes(x[pairs[:, 0]], y[pairs[:, 1]])
        score = mapping_criterion(x @ weight, y, neighborhood=neighborhood)
        best = weight if score > max(criteria) else best
        criteria.append(score)
    return best, criteria


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
        >>> es, en = Vectors(sol=(1, 0), luna=(0, 1)), Vectors(sun=(2, 1), moon=(0, 2), night=(1,
        ...     2))
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
