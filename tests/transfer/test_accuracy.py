"""Word translation across two spaces against plain loops, and the accuracy of real vectors."""

import random
from functools import partial
from pathlib import Path

import numpy as np
import oracles
import pytest
from checks import refused
from toys import own_words
from transfer.sources import Source

import polyembed as pe
from polyembed.data import read_dictionary
from polyembed.vectors import TextVectors


def toy(
    seed: int = 0, n: int = 53, m: int = 41, dim: int = 5
) -> tuple[Source, Source, list[tuple[str, str]]]:
    """Return two noisy copies of a space, and a dictionary.

    Some words have several translations, and some words have no translation.
    """
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, dim))
    y = x[:m] + 0.6 * rng.standard_normal((m, dim))
    source = Source({f"s{i}": x[i].tolist() for i in range(n)})
    target = Source({f"t{i}": y[i].tolist() for i in range(m)})
    pairs = [(f"s{i}", f"t{i}") for i in range(0, 60, 2)]
    pairs += [(f"s{i}", f"t{(7 * i) % m}") for i in range(0, 40, 5)] + [
        ("s1", "nothing"),
        ("nothing", "t1"),
    ]
    random.Random(seed).shuffle(pairs)
    return source, target, [*pairs, pairs[0]]


def scores_of(source: Source, target: Source, csls: bool) -> dict[str, dict[str, float]]:
    xs, ys = list(source.rows.values()), list(target.rows.values())
    matrix = oracles.csls(xs, ys, 10) if csls else [[oracles.cosine(x, y) for y in ys] for x in xs]
    return {
        word: dict(zip(target.words, row, strict=True))
        for word, row in zip(source.words, matrix, strict=True)
    }


def test_precision_is_that_of_plain_loops():
    source, target, pairs = toy(seed=1)
    ks = (10, 1, 3, 41, 5, 200)
    result = pe.translation_accuracy(source, target, pairs, ks=ks)
    for csls, found in ((False, result.cosine), (True, result.csls)):
        scores = scores_of(source, target, csls)
        assert found == {k: pytest.approx(oracles.precision_at(scores, pairs, k)) for k in ks}
        assert list(found) == list(ks)
        assert 0.2 < found[1] < found[10] < found[41] == found[200] == 1
    assert result.cosine != result.csls, "else this could not tell them apart"
    known = {pair for pair in pairs if pair[0] in source.rows and pair[1] in target.rows}
    assert result.num_queries == len({word for word, _ in known})
    assert result.num_words == len({word for word, _ in pairs})
    assert result.num_dropped == len(set(pairs)) - len(known)
    assert 0 < result.coverage == result.num_queries / result.num_words < 1


def test_a_table_of_the_result():
    source, target, pairs = toy()
    result = pe.translation_accuracy(source, target, pairs, ks=(1, 5))
    table, coverage = result.table(), f"{100 * result.coverage:.1f} %"
    assert table.columns == ("retrieval", "P@1", "P@5", "words", "coverage")
    for row, name, shares in zip(
        table.rows, ("cosine", "CSLS"), (result.cosine, result.csls), strict=True
    ):
        assert tuple(row) == (name, 100 * shares[1], 100 * shares[5], result.num_queries, coverage)


@pytest.fixture(scope="module")
def spanish_and_english(data_folder: Path) -> tuple[TextVectors, TextVectors]:
    folder = data_folder / "vectors" / "zhang2017" / "es-en"
    return TextVectors(folder / "word2vec.es"), TextVectors(folder / "word2vec.en")


def muse(data_folder: Path, part: str) -> list[tuple[str, str]]:
    return read_dictionary(data_folder / "bilingual_dictionaries" / "muse" / f"es-en.{part}.txt")


def test_real_vectors_with_a_dictionary(
    data_folder: Path, spanish_and_english: tuple[TextVectors, TextVectors]
):
    """An independent implementation has 0.753 by cosine, and 0.784 (308 of 393 words) by CSLS."""
    es, en = spanish_and_english
    test = muse(data_folder, "5000-6500")
    mapping = pe.align_spaces(es, en, dictionary=muse(data_folder, "0-5000"), refine=0)
    result = pe.translation_accuracy(mapping(es), en, test)
    assert (result.num_queries, result.num_words) == (393, 1500)
    assert result.cosine[1] >= 0.753
    assert result.csls[1] >= 0.783
    assert result.csls[10] >= 0.92
    back = pe.translation_accuracy(
        mapping.inverse()(en), es, [(english, spanish) for spanish, english in test]
    )
    assert back.csls[1] >= 0.6


def test_real_vectors_without_a_dictionary(
    data_folder: Path, spanish_and_english: tuple[TextVectors, TextVectors]
):
    """The first pairs are from the similarities of the 2,000 most frequent words."""
    es, en = spanish_and_english
    mapping = pe.align_spaces(es, en, dictionary="similarity", refine=10, max_words=2000)
    assert mapping.report["criteria"][0] < 0.6, "a rough start"
    assert pe.translation_accuracy(mapping(es), en, muse(data_folder, "5000-6500")).csls[1] >= 0.70


@own_words
def test_bad_arguments_are_refused():
    source, target, pairs = toy()
    call = partial(pe.translation_accuracy, source, target)
    refused(ValueError, r"^ks\[1\] must be a positive integer, got 0$", call, pairs, ks=(1, 0))
    rule = "^dictionary must hold a pair of words that both .* have, got 0 pairs, none "
    refused(ValueError, rule, call, [])
