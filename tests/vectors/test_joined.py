"""Several sources as one: who answers for which word, and the way to a folder and back."""

import copy
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from toys import TAGS, ToyVectors, own_words

import polyembed as pe
from polyembed.vectors import (
    FastTextVectors,
    JoinedVectors,
    OrthogonalMapping,
    TextVectors,
    WordVectors,
)

CORPUS = [["me", "gusta", "that", "song"], ["canción", "y", "song"], ["naïve"]] * 20
UNSEEN = [["songs", "que", "me", "gustaron"], ["cuando"]]


class Known:
    """Its own number for the words that it knows, zeros else; the empty list gives no row, as such classes do."""

    dim = 2

    def __init__(self, number: int, *words: str) -> None:
        self.number, self.known = number, words
        self.asked: list[list[str]] = []

    def vectors(self, words: list[str]) -> np.ndarray:
        self.asked.append(list(words))
        return np.float32(
            [[self.number, len(word)] if word in self.known else [0, 0] for word in words]
        )


class Speller(Known):
    """Spells every word, but has a vocabulary."""

    @property
    def words(self) -> list[str]:
        return list(self.known)

    def __contains__(self, word: object) -> bool:
        return word in self.known

    def vectors(self, words: list[str]) -> np.ndarray:
        self.asked.append(list(words))
        return np.float32([[self.number, len(word)] for word in words])


@pytest.fixture
def joined(tmp_path: Path) -> JoinedVectors:
    """A turned fastText model and a text file."""
    es = FastTextVectors.train(CORPUS[:20], tmp_path / "es.bin", dim=5, min_count=1, bucket=100)
    (tmp_path / "en.vec").write_text("that 1 2 3 4 5\nonly 5 4 3 2 1\n")
    turn = torch.linalg.qr(torch.randn(5, 5).double()).Q
    return JoinedVectors(
        [OrthogonalMapping(turn, report={"num_pairs": 3})(es), TextVectors(tmp_path / "en.vec")]
    )


def test_the_first_that_knows_a_word_answers() -> None:
    joined = JoinedVectors(
        iter([Known(1, "a", "both"), Known(2, "both", "b"), Known(3, "b", "c", "a")])
    )
    words = ["c", "a", "both", "b", "a", "nobody"]
    assert joined.vectors(words).tolist() == [[3, 1], [1, 1], [1, 4], [2, 1], [1, 1], [0, 0]]
    assert joined.vectors(words).dtype == np.float32
    assert joined.vectors([]).shape == (0, 2)
    assert isinstance(joined, WordVectors)
    nested = JoinedVectors([JoinedVectors([Known(1, "a"), Known(2, "b")]), Known(3, "b", "c")])
    assert nested.vectors(["a", "b", "c"])[:, 0].tolist() == [1, 2, 3]


def test_a_vocabulary_goes_before_spelling() -> None:
    """A source that could spell the word leaves it to one that knows it; what none knows the first speller spells."""
    sources = [Speller(1, "a"), Speller(2, "b"), Known(3, "c")]
    assert JoinedVectors(sources).vectors(["a", "b", "c", "new"])[:, 0].tolist() == [1, 2, 3, 1]
    assert JoinedVectors(sources[::-1]).vectors(["a", "b", "c", "new"])[:, 0].tolist() == [
        1,
        2,
        3,
        2,
    ]
    assert JoinedVectors(sources).vectors(["a"]).tolist() == [[1, 1]]
    assert all(asked for source in sources for asked in source.asked), "asked for no word"
    zero = Speller(0, "a")
    zero.vectors = lambda words: np.zeros((len(words), 2), np.float32)
    joined = JoinedVectors([zero, Speller(2, "b")])
    assert joined.vectors(["a", "b", "new"])[:, 0].tolist() == [0, 2, 2], (
        "a known word may have a zero vector"
    )


def test_words_are_of_all_vocabularies() -> None:
    joined = JoinedVectors([Speller(1, "b", "a"), Known(2, "c"), Speller(3, "d", "a")])
    assert joined.words == ["b", "a", "d"]
    assert all(word in joined for word in "abcd")
    assert "new" not in joined
    assert 5 not in joined


@own_words
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: JoinedVectors([]), ValueError, "sources must hold at least one source, got none"),
        (
            lambda: JoinedVectors([Known(1), ToyVectors(3)]),
            ValueError,
            r"sources must have .* length, got \[2, 3\]",
        ),
        (
            lambda: JoinedVectors(Known(1)),
            TypeError,
            "sources must be a sequence of sources, got Known",
        ),
        (
            lambda: JoinedVectors([Known(1), "es.bin"]),
            TypeError,
            r"sources\[1\] must have dim and vectors.*, got str",
        ),
        (
            lambda: JoinedVectors([Known(1)]).vectors("song"),
            TypeError,
            "words must be .*, got the string 'song'",
        ),
    ],
)
def test_what_cannot_be_joined_is_refused(call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{message}$"):
        call()


def test_real_files(joined: JoinedVectors, tmp_path: Path) -> None:
    es, en = joined.sources
    words = ["song", "only", "that", "songs"]
    rows = joined.vectors(words)
    np.testing.assert_array_equal(rows[[0, 2, 3]], es.vectors(["song", "that", "songs"]))
    np.testing.assert_array_equal(rows[[1]], en.vectors(["only"]))
    assert rows.any(1).all()
    assert joined.words == [*es.words, "only"]
    assert joined.files() == {"0.path": tmp_path / "es.bin", "1.path": tmp_path / "en.vec"}
    assert repr(joined) == f"JoinedVectors(sources=({es!r}, {en!r}))"
    for twin in (copy.deepcopy(joined), pickle.loads(pickle.dumps(joined))):
        np.testing.assert_array_equal(twin.vectors(words), rows)
        assert twin.files() == joined.files()


def build_tagger(source: WordVectors) -> pe.SequenceTagger:
    torch.manual_seed(0)
    lexicon = pe.Lexicon.from_sentences(CORPUS)
    encoder = pe.LSTMSequenceEncoder(source.dim, hidden_size=7)
    return pe.SequenceTagger(pe.SourceEmbedding(source, lexicon), TAGS, encoder=encoder).eval()


def emissions(tagger: pe.SequenceTagger, sentences: list[list[str]]) -> torch.Tensor:
    """Return emissions of raw words, unseen ones with vectors of their own."""
    words = tagger.embedder.with_words(word for sentence in sentences for word in sentence)
    whole = pe.SequenceTagger(words, tagger.tags, encoder=tagger.encoder, decoder=tagger.decoder)
    return whole.eval().emissions(*whole.encode(sentences))


def test_a_tagger_is_saved_with_its_sources_again_and_again(
    joined: JoinedVectors, tmp_path: Path
) -> None:
    tagger = build_tagger(joined)
    expected = emissions(tagger, CORPUS[:3] + UNSEEN)
    tagger.save_pretrained(tmp_path / "tagger")
    names = sorted(os.listdir(tmp_path / "tagger"))
    assert [name for name in names if name.startswith(("mapping", "vectors"))] == [
        "mapping-0.safetensors",
        "vectors-0-es.bin",
        "vectors-1-en.vec",
    ]
    tagger.save_pretrained(tmp_path / "light", copy_vectors=False)
    light = pe.SequenceTagger.from_pretrained(tmp_path / "light")
    assert light.embedder.source is None
    light.embedder.attach(joined)
    assert torch.equal(emissions(light, CORPUS[:3] + UNSEEN), expected)
    for name in ("es.bin", "en.vec"):
        (tmp_path / name).unlink()
    moved = Path(shutil.move(tmp_path / "tagger", tmp_path / "elsewhere"))
    for _ in range(2):
        again = pe.SequenceTagger.from_pretrained(moved)
        again.save_pretrained(moved)
        assert sorted(os.listdir(moved)) == names
    again = pe.SequenceTagger.from_pretrained(moved)
    assert again.embedder.source.sources[0].mapping.report == {"num_pairs": 3}
    assert torch.equal(emissions(again, CORPUS[:3] + UNSEEN), expected)


def test_a_light_folder_written_over_a_whole_one_keeps_the_files_in_use(
    joined: JoinedVectors, tmp_path: Path
) -> None:
    """The loaded tagger reads its vectors from this folder: they must not go."""
    build_tagger(joined).save_pretrained(tmp_path / "tagger")
    again = pe.SequenceTagger.from_pretrained(tmp_path / "tagger")
    again.save_pretrained(tmp_path / "tagger", copy_vectors=False)
    names = os.listdir(tmp_path / "tagger")
    assert {"vectors-0-es.bin", "vectors-1-en.vec"} <= set(names)
    assert again.embedder.source.vectors(["only", "songs"]).any(1).all()


def test_a_source_that_cannot_be_rebuilt_is_not_saved(tmp_path: Path) -> None:
    embedder = pe.SourceEmbedding(JoinedVectors([ToyVectors(2), Known(1, "a")]), pe.Lexicon(["a"]))
    with pytest.raises(
        TypeError, match=r"sources\[1\] must be something that can be rebuilt .*, got Known$"
    ):
        embedder.save_pretrained(tmp_path / "folder")
    assert os.listdir(tmp_path) == []
    pe.SourceEmbedding(JoinedVectors([ToyVectors(2)]), pe.Lexicon(["a"])).save_pretrained(
        tmp_path / "folder"
    )
    again = pe.SourceEmbedding.from_pretrained(tmp_path / "folder")
    np.testing.assert_array_equal(again.source.vectors(["x"]), ToyVectors(2).vectors(["x"]))
