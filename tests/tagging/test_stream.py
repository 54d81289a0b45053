"""Labels for a stream of texts, which is read in order and one bucket at a time."""

import pytest
from cases import characters
from checks import refused
from toys import SENTENCES, TAGS, toy_lexicon

import polyembed as pe
from polyembed.tagging import text_model

MANY = [*SENTENCES, [], ["supercalifragilistic", "me"], ["me"], [], *SENTENCES, ["unheard", "of"]]


def build() -> pe.SequenceTagger:
    return pe.SequenceTagger(characters(toy_lexicon()), TAGS)


@pytest.fixture
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_model, "BATCHES_TOGETHER", 2)


@pytest.mark.usefixtures("small_buckets")
def test_order_is_kept_over_buckets():
    tagger = build()
    alone = [tagger.predict([words])[0] for words in MANY]
    for size in (1, 2, 3, 64):
        assert tagger.predict(MANY, batch_size=size) == alone
        assert list(tagger.predict_stream(iter(MANY), batch_size=size)) == alone
    assert [*map(len, alone)] == [*map(len, MANY)]


@pytest.mark.usefixtures("small_buckets")
def test_no_more_is_read_than_a_bucket():
    taken = []

    def texts():
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
def test_a_text_is_named_by_its_number_in_the_stream():
    tagger = build()
    for wrong in ("me gusta", ["me", 3]):
        rule = r"^texts\[7\](\[1\])? must be a (list of words|string), got "
        refused(TypeError, rule, tagger.predict, [["unheard"]] * 7 + [wrong], batch_size=2)
    rule = "^texts must be an iterable of texts, got str$"
    refused(TypeError, rule, tagger.predict_stream, "me")
    rule = "^batch_size must be a positive integer, got 0$"
    refused(ValueError, rule, tagger.predict_stream, [], batch_size=0)
