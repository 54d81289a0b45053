"""Labels for texts that come one by one: in order, a bucket at a time, and nothing of it stays."""

from collections.abc import Iterator

import pytest
import torch
import tqdm
from toys import SENTENCES, TAGS, ToyVectors, toy_lexicon

import polyembed as pe
from polyembed.tagging import text_model

EMPTY: list[str] = []
MANY = [
    *SENTENCES,
    EMPTY,
    ["supercalifragilistic", "me"],
    ["me"],
    EMPTY,
    *SENTENCES,
    ["unheard", "of"],
]


def build() -> pe.SequenceTagger:
    torch.manual_seed(0)
    lexicon = toy_lexicon()
    chars = pe.SpelledEmbedding.from_characters(lexicon, pe.CharCNN(lexicon.num_characters, 5))
    hme = pe.HierarchicalMetaEmbedding(
        words=pe.SourceEmbedding(ToyVectors(3), lexicon), characters=chars
    )
    return pe.SequenceTagger(hme, TAGS)


@pytest.fixture
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_model, "BATCHES_TOGETHER", 2)


@pytest.mark.usefixtures("small_buckets")
def test_order_is_kept_over_buckets() -> None:
    tagger = build()
    alone = [tagger.predict([words])[0] for words in MANY]
    for options in ({"batch_size": 1}, {"batch_size": 2}, {"batch_size": 3}, {}):
        assert tagger.predict(MANY, **options) == alone
        assert list(tagger.predict_stream(iter(MANY), **options)) == alone
    assert [len(tags) for tags in alone] == [len(words) for words in MANY]


def test_texts_of_like_length_are_labelled_together(monkeypatch: pytest.MonkeyPatch) -> None:
    tagger, shapes, decode = build(), [], pe.SequenceTagger.decode
    monkeypatch.setattr(
        pe.SequenceTagger,
        "decode",
        lambda self, ids, mask: shapes.append(tuple(mask.shape)) or decode(self, ids, mask),
    )
    tagger.predict([["me"] * (5 if i % 2 else 1) for i in range(6)], batch_size=3)
    assert shapes == [(3, 1), (3, 5)]


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
def test_streams_side_by_side_do_not_meet() -> None:
    """Streams of one tagger, and of two over one lexicon, give what each gives alone."""
    one = build()
    other = pe.SequenceTagger(
        pe.SpelledEmbedding.from_characters(one.lexicon, pe.CharCNN(one.lexicon.num_characters, 5)),
        TAGS,
    )
    texts = [[[f"{name}{i % 3}", "me"] for i in range(8)] for name in ("unheard", "of")]
    for models in ((one, one), (one, other)):
        alone = [model.predict(part) for model, part in zip(models, texts, strict=True)]
        streams = [
            model.predict_stream(part, batch_size=1)
            for model, part in zip(models, texts, strict=True)
        ]
        found = [[next(stream) for _ in range(3)] for stream in streams]
        found[1] += streams[1]
        found[0] += streams[0]
        assert found == alone


def test_a_dataset_that_has_items_alone_is_read() -> None:
    class Items:
        def __getitem__(self, i: int) -> list[str]:
            return MANY[i]

    assert build().predict(Items()) == build().predict(MANY)


@pytest.mark.usefixtures("small_buckets")
def test_a_text_is_named_by_its_number_in_the_stream() -> None:
    tagger = build()
    for wrong, rule in (
        ("me gusta", "be a list of words"),
        (None, "be a list of words"),
        (["me", 3], "be a string"),
    ):
        with pytest.raises(TypeError, match=rf"^sentences\[7\](\[1\])? must {rule}, got "):
            tagger.predict([["unheard"]] * 7 + [wrong], batch_size=2)
    for call in (tagger.predict, tagger.predict_stream):
        with pytest.raises(TypeError, match=r"^texts must be an iterable of texts, got str$"):
            call("me")
        with pytest.raises(ValueError, match=r"^batch_size must be a positive integer, got 0$"):
            call([], batch_size=0)


def test_empty_texts_have_lists_of_their_own() -> None:
    first, second = build().predict([[], []])
    first.append("X")
    assert second == []


@pytest.mark.usefixtures("small_buckets")
def test_a_bar_counts_texts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tagger, counts = build(), []
    tagger.predict(MANY)
    assert not capsys.readouterr().err
    monkeypatch.setattr(tqdm.tqdm, "update", lambda bar, count: counts.append((bar.total, count)))
    tagger.predict(MANY, progress=True, batch_size=4)
    list(tagger.predict_stream(iter(MANY), progress=True, batch_size=4))
    assert counts == [(len(MANY), 8), (len(MANY), len(MANY) - 8), (None, 8), (None, len(MANY) - 8)]
