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
from polyembed.vectors import FastTextVectors, JoinedVectors, OrthogonalMapping, TextVectors, WordVectors

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
        return np.float32([[self.number, len(word)] if word in self.known else [0, 0] for word in words])


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
    return JoinedVectors([OrthogonalMapping(turn, report={"num_pairs": 3})(es), TextVectors(tmp_path / "en.vec")])


def test_the_first_that_knows_a_word_answers() -> None:
    joined = JoinedVectors([Known(1, "a", "both"), Known(2, "both", "b"), Known(3, "b", "c", "a")])
    words = ["c", "a", "both", "b", "a", "nobody"]
    assert joined.vectors(words).tolist() == [[3, 1], [1, 1], [1, 4], [2, 1], [1, 1], [0, 0]]
    assert joined.vectors(words).dtype == np.float32
    assert isinstance(joined, WordVectors)
    assert joined.dim == 2


def test_a_vocabulary_goes_before_spelling() -> None:
    """A source that could spell the word leaves it to one that knows it; what none knows the first speller spells."""
    joined = JoinedVectors([Speller(1, "a"), Speller(2, "b"), Known(3, "c")])
    assert joined.vectors(["a", "b", "c", "new"])[:, 0].tolist() == [1, 2, 3, 1]
    joined = JoinedVectors([Known(3, "c"), Speller(2, "b"), Speller(1, "a")])
    assert joined.vectors(["a", "b", "c", "new"])[:, 0].tolist() == [1, 2, 3, 2]


def test_a_word_known_by_a_zero_vector_is_known() -> None:
    class Zero(Speller):
        def vectors(self, words: list[str]) -> np.ndarray:
            return np.zeros((len(words), 2), np.float32)

    assert JoinedVectors([Zero(1, "a"), Speller(2, "b")]).vectors(["a", "b", "new"])[:, 0].tolist() == [0, 2, 2]


def test_words_are_of_all_vocabularies() -> None:
    joined = JoinedVectors([Speller(1, "b", "a"), Known(2, "c"), Speller(3, "d", "a")])
    assert joined.words == ["b", "a", "d"]
    assert all(word in joined for word in "abcd")
    assert "new" not in joined
    assert 5 not in joined


def test_no_words_and_words_that_leave_a_source_out() -> None:
    sources = [Known(1, "a"), Speller(2, "b")]
    joined = JoinedVectors(sources)
    assert joined.vectors([]).shape == (0, 2)
    assert joined.vectors([]).dtype == np.float32
    assert joined.vectors(["a"]).tolist() == [[1, 1]]
    assert all(asked for source in sources for asked in source.asked), "asked for no word"


def test_one_source_and_a_generator_of_sources() -> None:
    assert JoinedVectors([Known(1, "a")]).vectors(["a", "b"]).tolist() == [[1, 1], [0, 0]]
    assert len(JoinedVectors(Known(i, "a") for i in range(3)).sources) == 3
    nested = JoinedVectors([JoinedVectors([Known(1, "a"), Known(2, "b")]), Known(3, "b", "c")])
    assert nested.vectors(["a", "b", "c"])[:, 0].tolist() == [1, 2, 3]


@own_words
def test_what_cannot_be_joined_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^sources must hold at least one source, got none$"):
        JoinedVectors([])
    with pytest.raises(ValueError, match=r"^sources must have vectors of one length, got \[2, 3\]$"):
        JoinedVectors([Known(1), ToyVectors(3)])
    with pytest.raises(TypeError, match=r"^sources must be a sequence of sources, got Known$"):
        JoinedVectors(Known(1))
    with pytest.raises(TypeError, match=r"^sources\[1\] must have dim and vectors\(words\), got str$"):
        JoinedVectors([Known(1), "es.bin"])


def test_real_files(joined: JoinedVectors, tmp_path: Path) -> None:
    es, en = joined.sources
    words = ["song", "only", "that", "songs"]
    rows = joined.vectors(words)
    np.testing.assert_array_equal(rows[[0, 2, 3]], es.vectors(["song", "that", "songs"]))
    np.testing.assert_array_equal(rows[[1]], en.vectors(["only"]))
    assert rows.any(1).all()
    assert joined.words == [*es.words, "only"]
    assert joined.files() == {"0.path": tmp_path / "es.bin", "1.path": tmp_path / "en.vec"}
    assert ("song" in joined, "only" in joined, "songs" in joined) == (True, True, False)
    assert repr(joined) == f"JoinedVectors(sources=({es!r}, {en!r}))"


def test_copies_are_equal(joined: JoinedVectors) -> None:
    words = ["song", "only", "songs"]
    for twin in (copy.deepcopy(joined), pickle.loads(pickle.dumps(joined))):
        np.testing.assert_array_equal(twin.vectors(words), joined.vectors(words))
        assert twin.files() == joined.files()


def build_tagger(source: WordVectors) -> pe.SequenceTagger:
    torch.manual_seed(0)
    lexicon = pe.Lexicon.from_sentences(CORPUS)
    encoder = pe.LSTMSequenceEncoder(source.dim, hidden_size=7)
    return pe.SequenceTagger(pe.SourceEmbedding(source, lexicon), TAGS, encoder=encoder).eval()


def emissions(tagger: pe.SequenceTagger, sentences: list[list[str]]) -> torch.Tensor:
    """Return emissions of raw words, unseen ones with vectors of their own."""
    words = tagger.embedder.covering(word for sentence in sentences for word in sentence)
    whole = pe.SequenceTagger(words, tagger.tags, encoder=tagger.encoder, decoder=tagger.decoder)
    return whole.eval().emissions(*whole.encode(sentences))


def test_a_tagger_is_saved_with_its_sources_again_and_again(joined: JoinedVectors, tmp_path: Path) -> None:
    tagger = build_tagger(joined)
    tagger.save_pretrained(tmp_path / "tagger")
    names = sorted(os.listdir(tmp_path / "tagger"))
    assert [name for name in names if name.startswith(("mapping", "vectors"))] == [
        "mapping-0.safetensors",
        "vectors-0-es.bin",
        "vectors-1-en.vec",
    ]
    for name in ("es.bin", "en.vec"):
        (tmp_path / name).unlink()
    moved = Path(shutil.move(tmp_path / "tagger", tmp_path / "elsewhere"))
    for _ in range(3):
        again = pe.SequenceTagger.from_pretrained(moved)
        again.save_pretrained(moved)
        assert sorted(os.listdir(moved)) == names
    again = pe.SequenceTagger.from_pretrained(moved)
    source = again.embedder.source
    assert isinstance(source, JoinedVectors)
    assert source.sources[0].mapping.report == {"num_pairs": 3}
    assert source.vectors(["only", "songs"]).any(1).all()
    fresh = build_tagger(pe.SequenceTagger.from_pretrained(moved).embedder.source)
    assert torch.equal(emissions(again, CORPUS[:3] + UNSEEN), emissions(fresh, CORPUS[:3] + UNSEEN))


def test_predictions_stay(joined: JoinedVectors, tmp_path: Path) -> None:
    tagger = build_tagger(joined)
    tagger.save_pretrained(tmp_path / "tagger")
    again = pe.SequenceTagger.from_pretrained(tmp_path / "tagger")
    assert torch.equal(emissions(again, UNSEEN), emissions(tagger, UNSEEN))
    assert again.predict(CORPUS[:3] + UNSEEN) == tagger.predict(CORPUS[:3] + UNSEEN)


def test_a_light_folder_written_over_a_whole_one_keeps_the_files_in_use(joined: JoinedVectors, tmp_path: Path) -> None:
    """The loaded tagger reads its vectors from this folder: they must not go."""
    build_tagger(joined).save_pretrained(tmp_path / "tagger")
    again = pe.SequenceTagger.from_pretrained(tmp_path / "tagger")
    again.save_pretrained(tmp_path / "tagger", copy_vectors=False)
    names = os.listdir(tmp_path / "tagger")
    assert {"vectors-0-es.bin", "vectors-1-en.vec"} <= set(names)
    assert again.embedder.source.vectors(["only", "songs"]).any(1).all()


def test_without_vector_files(joined: JoinedVectors, tmp_path: Path) -> None:
    tagger = build_tagger(joined)
    tagger.save_pretrained(tmp_path / "tagger", copy_vectors=False)
    assert not any(name.startswith(("mapping", "vectors")) for name in os.listdir(tmp_path / "tagger"))
    again = pe.SequenceTagger.from_pretrained(tmp_path / "tagger")
    assert again.embedder.source is None
    again.embedder.attach(joined)
    assert torch.equal(emissions(again, UNSEEN), emissions(tagger, UNSEEN))


def test_a_source_that_cannot_be_rebuilt_is_not_saved(tmp_path: Path) -> None:
    embedder = pe.SourceEmbedding(JoinedVectors([ToyVectors(2), Known(1, "a")]), pe.Lexicon(["a"]))
    with pytest.raises(TypeError, match=r"sources\[1\] must be something that can be rebuilt .*, got Known$"):
        embedder.save_pretrained(tmp_path / "folder")
    assert os.listdir(tmp_path) == []
    pe.SourceEmbedding(JoinedVectors([ToyVectors(2)]), pe.Lexicon(["a"])).save_pretrained(tmp_path / "folder")
    again = pe.SourceEmbedding.from_pretrained(tmp_path / "folder")
    np.testing.assert_array_equal(again.source.vectors(["x"]), ToyVectors(2).vectors(["x"]))


@own_words
def test_a_string_is_no_list_of_words() -> None:
    with pytest.raises(TypeError, match=r"^words must be a sequence of words, got the string 'song'$"):
        JoinedVectors([ToyVectors(2)]).vectors("song")
