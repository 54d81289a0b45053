"""Labels for texts that come one by one: in order, a bucket at a time, and nothing of it stays."""

from collections.abc import Iterator

import pytest
import torch
import tqdm
from toys import SENTENCES, TAGS, ToyVectors, toy_lexicon

import polyembed as pe
from polyembed.tagging import text_model

EMPTY: list[str] = []
MANY = [*SENTENCES, EMPTY, ["supercalifragilistic", "me"], ["me"], EMPTY, *SENTENCES, ["unheard", "of"]]


def build() -> pe.SequenceTagger:
    torch.manual_seed(0)
    lexicon = toy_lexicon()
    chars = pe.SpelledEmbedding.from_characters(lexicon, pe.CharCNN(lexicon.num_characters, 5))
    hme = pe.HierarchicalMetaEmbedding(words=pe.SourceEmbedding(ToyVectors(3), lexicon), characters=chars)
    return pe.SequenceTagger(hme, TAGS, lexicon=lexicon)


@pytest.fixture
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_model, "BATCHES_TOGETHER", 2)


@pytest.mark.usefixtures("small_buckets")
def test_order_is_kept_over_buckets() -> None:
    tagger = build()
    alone = [tagger.predict([words])[0] for words in MANY]
    for options in ({"batch_size": 1}, {"batch_size": 2}, {"batch_size": 3, "cache_size": 1}, {}):
        assert tagger.predict(MANY, **options) == alone
        assert list(tagger.predict_stream(iter(MANY), **options)) == alone
    assert [len(tags) for tags in alone] == [len(words) for words in MANY]


@pytest.mark.usefixtures("small_buckets")
def test_no_more_is_read_than_a_bucket() -> None:
    taken = []

    def texts() -> Iterator[list[str]]:
        for i in range(100):
            taken.append(i)
            yield ["me", "gusta"]

    stream = build().predict_stream(texts(), batch_size=3)
    assert not taken
    next(stream)
    assert len(taken) == 6
    for _ in range(6):
        next(stream)
    assert len(taken) == 12


@pytest.mark.usefixtures("small_buckets")
def test_closing_takes_unseen_words_out_again() -> None:
    tagger = build()
    size, training = len(tagger.lexicon), tagger.training
    stream = tagger.predict_stream([["unheard"], ["of"]] * 3, batch_size=1)
    next(stream)
    assert len(tagger.lexicon) > size
    assert tagger.training == training  # the mode comes back at once: somebody else may train now
    assert torch.is_grad_enabled()
    nested = tagger.predict([["unheard", "me"]])
    assert nested == build().predict([["unheard", "me"]])
    stream.close()
    assert len(tagger.lexicon) == size == tagger.embedder.num_embeddings


@pytest.mark.usefixtures("small_buckets")
def test_a_text_is_named_by_its_number_in_the_stream() -> None:
    tagger = build()
    size = len(tagger.lexicon)
    for wrong, rule in (("me gusta", "be a list of words"), (None, "be a list of words"), (["me", 3], "be a string")):
        with pytest.raises(TypeError, match=rf"^sentences\[7\](\[1\])? must {rule}, got "):
            tagger.predict([["unheard"]] * 7 + [wrong], batch_size=2)
        assert len(tagger.lexicon) == size
    with pytest.raises(TypeError, match=r"^texts must be lists of words, got the string 'me'$"):
        tagger.predict("me")
    with pytest.raises(ValueError, match=r"^batch_size must be a positive integer, got 0$"):
        tagger.predict([], batch_size=0)


def test_empty_texts_have_lists_of_their_own() -> None:
    first, second = build().predict([[], []])
    first.append("X")
    assert second == []


@pytest.mark.usefixtures("small_buckets")
def test_a_bar_counts_texts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    tagger, counts = build(), []
    tagger.predict(MANY)
    assert not capsys.readouterr().err
    monkeypatch.setattr(tqdm.tqdm, "update", lambda bar, count: counts.append((bar.total, count)))
    tagger.predict(MANY, progress=True, batch_size=4)
    list(tagger.predict_stream(iter(MANY), progress=True, batch_size=4))
    assert counts == [(len(MANY), 8), (len(MANY), len(MANY) - 8), (None, 8), (None, len(MANY) - 8)]
