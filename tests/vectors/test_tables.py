"""Common features of word tables: look-up, the rule for lower case, coverage, other packages."""

import math
import pickle
import struct

import numpy as np
import pytest
import torch
from checks import refused
from toys import ToyVectors

from polyembed import Lexicon, SourceEmbedding
from polyembed.vectors import (
    JoinedVectors,
    TextVectors,
    Word2VecBinaryVectors,
    as_source,
)

ROWS = {"paris": [1.0, 2.0], "él": [3.0, 4.0], "niño": [0.0, 0.0], "🙂": [7.0, 8.0]}
CASED = {**ROWS, "Roma": [5.0, 6.0]}


def gensim_vectors(rows, path=None):
    keyed = pytest.importorskip("gensim").models.KeyedVectors(2)
    keyed.add_vectors(list(rows), list(rows.values()))
    return keyed


def text(rows, path):
    path.write_text("".join(f"{word} {a} {b}\n" for word, (a, b) in rows.items()), "utf-8")
    return TextVectors(path)


def binary(rows, path):
    lines = (f"{word} ".encode() + struct.pack("<2f", *row) + b"\n" for word, row in rows.items())
    path.write_bytes(b"%d 2\n" % len(rows) + b"".join(lines))
    return Word2VecBinaryVectors(path)


@pytest.fixture(params=[text, binary, gensim_vectors])
def build(request, tmp_path):
    return lambda rows: as_source(request.param(rows, tmp_path / "table"))


def test_every_word_has_its_row_and_others_zeros(build, monkeypatch):
    for _ in range(2):
        source = build(ROWS)
        assert (source.dim, source.words) == (2, list(ROWS))
        asked = ["🙂", "paris", "par", "", "pariss", "paris\0", "\ud800", "🙂"]
        rows = source.vectors(asked)
        assert rows.tolist() == [[7, 8], [1, 2], *[[0, 0]] * 5, [7, 8]]
        assert source.vectors([]).shape == (0, 2)
        assert [word in source for word in ("niño", "ñ", "", b"paris", None)] == [True] + [
            False
        ] * 4
        refused(TypeError, "words must be a list of words, got the string", source.vectors, "me")
        # Words with equal hashes are told apart.
        monkeypatch.setattr("polyembed.vectors.words.hash", lambda word: -7, raising=False)


def test_a_table_in_lower_case_knows_capitalised_words(build):
    lower = build({**ROWS, "<UNK>": [5.0, 6.0]})
    # any iterable works, such as a pandas column whose labels are not positions
    assert lower.vectors(iter(["Paris", "ÉL", "Roma"])).tolist() == [[1, 2], [3, 4], [0, 0]]
    assert "Paris" in lower
    cased = build(CASED)
    assert cased.vectors(["Paris", "Roma", "ROMA"]).tolist() == [[0, 0], [5, 6], [0, 0]]
    assert "Paris" not in cased


def test_the_first_of_repeated_words_counts_and_other_bytes_stay(tmp_path):
    (tmp_path / "a.vec").write_bytes(b"ni\xf1o 1 2\nb 3 4\nni\xf1o 5 6\n")
    one, two = struct.pack("<2f", 1, 2), struct.pack("<2f", 3, 4)
    (tmp_path / "a.bin").write_bytes(b"3 2\nni\xf1o " + one + b"b " + two + b"ni\xf1o " + two)
    for source in (TextVectors(tmp_path / "a.vec"), Word2VecBinaryVectors(tmp_path / "a.bin")):
        assert source.words == ["ni\udcf1o", "b"]
        assert source.vectors(["b", "ni\udcf1o", "niño"]).tolist() == [[3, 4], [1, 2], [0, 0]]


def test_a_pickle_is_the_call(tmp_path):
    stored = pickle.dumps(source := text(ROWS, tmp_path / "table"))
    assert len(stored) < 500
    np.testing.assert_array_equal(pickle.loads(stored).vectors(ROWS), list(ROWS.values()))
    assert f"path='{tmp_path}/table'" in repr(source)


def test_keyed_vectors_are_a_source_everywhere(monkeypatch, tmp_path):
    source = gensim_vectors(ROWS)
    joined = JoinedVectors([source, ToyVectors(2)])
    assert joined.vectors(["paris", "gusta"]).all()
    SourceEmbedding(joined, Lexicon(["paris"])).save_pretrained(tmp_path)
    opened = SourceEmbedding.from_pretrained(tmp_path)
    assert "KeyedVectors<vector_size=2, 4 keys>" in opened.missing_source
    embedder = SourceEmbedding(source, Lexicon(["paris", "gusta"]))
    assert embedder(torch.tensor([2, 3])).tolist() == [[1, 2], [0, 0]]
    stored = pickle.dumps(embedder)
    # Another process has other hashes.
    monkeypatch.setattr("polyembed.vectors.words.hash", lambda word: -7, raising=False)
    assert pickle.loads(stored).source.vectors(["paris"]).tolist() == [[1, 2]]
    rule = r"^target must have dim and vectors\(words\), got ndarray$"
    refused(TypeError, rule, as_source, np.zeros((2, 3)), name="target")


@pytest.mark.parametrize("bucket", [0, 9])
def test_fasttext_of_gensim_spells_the_words_that_it_lacks(bucket):
    gensim = pytest.importorskip("gensim")
    options = {"vector_size": 2, "min_count": 1, "bucket": bucket}
    keyed = gensim.models.FastText([list(ROWS)], **options).wv
    spelled = keyed["songs"] if bucket else [0, 0]
    rows = as_source(keyed).vectors(["songs", "", "\ud800"])
    np.testing.assert_array_equal(rows, [spelled, [0, 0], [0, 0]])
    spelled = keyed["Paris"] if bucket else [0, 0]
    np.testing.assert_array_equal(as_source(keyed).vectors(["Paris"]), [spelled])


def test_coverage_by_language(tmp_path):
    source = text({"me": (1.0, 2.0), "that": (1.0, 2.0)}, tmp_path / "a.vec")
    words, tags = [["me", "gusta", "that"], ["me"], []], [["es", "es", "en"], ["es"], []]
    # the example in the docstring shows the whole table
    rows = source.coverage(map(iter, words), np.array(tags, object)).rows
    assert list(rows[1]) == ["es", 2, 1, 50.0, 3, 2, 100 * 2 / 3]
    refused(ValueError, "sentences must hold at least one word, got none", source.coverage, [[]])
    refused(ValueError, r"languages\[0\] must", source.coverage, [["me"]], [["es", "en"]])


def test_a_vector_that_is_not_finite_is_named(tmp_path):
    source = text({"me": (1.0, 2.0), "odd": (math.inf, 1.0)}, tmp_path / "a.vec")
    assert source.vectors(["me"]).tolist() == [[1.0, 2.0]]
    rule = r"the numbers of .*a\.vec.* must be finite, got NaN or an infinity for 'odd'"
    refused(ValueError, rule, source.vectors, ["me", "odd"])
