"""What every reader returns."""

import pickle

import pytest
from checks import refused

from polyembed.data import TaggedSentence


def test_holds_words_and_tags() -> None:
    sentence = TaggedSentence(
        ("a", "b"), ("X", "Y"), languages=("en", "es"), metadata={"sent_id": "1"}
    )
    assert len(sentence) == 2
    assert pickle.loads(pickle.dumps(sentence)) == sentence


def test_sentences_do_not_share_metadata() -> None:
    assert TaggedSentence((), ()).metadata is not TaggedSentence((), ()).metadata


def test_lengths_must_agree() -> None:
    refused(
        ValueError,
        r"^tags must be as many as the words, 2, got 1$",
        TaggedSentence,
        ("a", "b"),
        ("X",),
    )
    with pytest.raises(ValueError, match=r"^languages must be as many as the words, 2, got 3$"):
        TaggedSentence(("a", "b"), ("X", "Y"), languages=("en", "en", "en"))
