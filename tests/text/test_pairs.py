"""Pairs in one row, against what tokenizers of transformers make of them."""

from pathlib import Path

import pytest
from checks import refused
from tiny_models import VOCABULARY, slow_tokenizer, word_piece_tokenizer
from tokenizers import processors
from toys import own_words

from polyembed.text import align_pairs
from polyembed.text.pairs import pair_frame

PAIRS = [
    (["me", "gusta", "la", "cancion"], ["songs"]),
    (["a"], ["b", "c", "gusta", "me", "me"]),
    ([], ["me", "la"]),
    (["me"], []),
    ([], []),
    (["me", "gusta", "la"] * 3, ["cancion", "songs"] * 3),
    (["cancion", "songs"] * 3, ["me", "gusta", "la"] * 3),
    (["me", "gusta", "la"] * 3, ["la", "gusta", "me"] * 3),
]


def bert(*, types: bool = True, doubled: bool = False):
    """BERT's layout; with a second separator, XLM-R's."""
    tokenizer = word_piece_tokenizer()
    second = "[SEP] $B:1 [SEP]:1" if types else "[SEP] $B [SEP]"
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair=f"[CLS] $A [SEP] {second}" if doubled else f"[CLS] $A {second}",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    if types:
        tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    return tokenizer


TOKENIZERS = {
    "bert": lambda folder: bert(),
    "xlm-roberta": lambda folder: bert(types=False, doubled=True),
    "types and two separators": lambda folder: bert(doubled=True),
    "slow": slow_tokenizer,
}


@pytest.mark.parametrize("make", TOKENIZERS.values(), ids=TOKENIZERS)
@pytest.mark.parametrize("max_length", [None, 5, 8, 9, 12, 13])
def test_as_the_tokenizer_joins_them(tmp_path: Path, make, max_length: int | None) -> None:
    tokenizer = make(tmp_path)
    found = align_pairs(PAIRS, tokenizer, max_length=max_length, overflow="truncate")
    for row, (first, second) in enumerate(PAIRS):
        if not (tokenizer.is_fast or (first and second)):
            continue  # slow ones take no empty sentence
        if not tokenizer.is_fast and max_length is not None and max_length % 2 == 0:
            # of an odd room, they leave one piece more to the first sentence, not to the longer
            continue
        limit = (
            {} if max_length is None else {"truncation": "longest_first", "max_length": max_length}
        )
        batch = tokenizer([first], [second], is_split_into_words=True, **limit)
        expected = {name: value[0] for name, value in batch.items()}
        valid = found.pieces.piece_mask[row]
        assert found.pieces.piece_ids[row][valid].tolist() == expected["input_ids"]
        assert (found.token_types is None) == ("token_type_ids" not in expected)
        if found.token_types is not None:
            assert found.token_types[row][valid].tolist() == expected["token_type_ids"]
            assert not found.token_types[row][~valid].any()
    found.pieces.check()


def test_words_are_counted_on() -> None:
    pieces, types = align_pairs(PAIRS[:2], bert())
    assert pieces.word_index[0].tolist() == [-1, 0, 1, 1, 2, 3, 3, 3, -1, 4, 4, -1]
    assert types[0].tolist() == [0] * 9 + [1] * 3
    assert pieces.word_index[1].tolist() == [-1, 0, -1, 1, 2, 3, 3, 4, 5, -1, -1, -1]
    cut, _ = align_pairs(PAIRS[:1], bert(), max_length=8, overflow="truncate")
    assert cut.word_index[0].tolist() == [-1, 0, 1, 1, -1, 2, 2, -1]


def test_dropped_words_are_unknown() -> None:
    pieces, _ = align_pairs([(["\u200b", "me"], ["", "\ud800"])], bert())
    assert [VOCABULARY[i] for i in pieces.piece_ids[0]] == [
        "[CLS]",
        "[UNK]",
        "me",
        "[SEP]",
        "[UNK]",
        "[UNK]",
        "[SEP]",
    ]


def test_words_that_can_be_read_once_are_not_lost() -> None:
    found = align_pairs([(iter(["me"]), iter(["la", "gusta"]))], bert())
    assert (
        found.pieces.piece_ids.tolist()
        == align_pairs([(["me"], ["la", "gusta"])], bert()).pieces.piece_ids.tolist()
    )


def test_no_pairs() -> None:
    pieces, types = align_pairs([], bert())
    assert pieces.piece_ids.shape == types.shape == (0, 0)


def test_frame() -> None:
    frame = pair_frame(bert(doubled=True))
    assert frame.ids == ((2,), (3, 3), (3,))
    assert frame.types == ((0,), (0,), (0, 0), (1,), (1,))
    assert sum(map(len, frame.ids)) == 4
    assert pair_frame(bert(types=False)).types is None


class OneOnly:
    """A tokenizer that reads the first sentence alone."""

    model_max_length = 10

    def __call__(self, sentences, pairs=None, **options):
        return {"input_ids": [[7] * len(words) for words in sentences]}


@own_words
def test_bad_input() -> None:
    def join(pairs: list, tokenizer=None, **options) -> None:
        align_pairs(pairs, tokenizer or bert(), **options)

    for pair, found in (("me", "str 'me'"), (7, "int 7")):
        refused(TypeError, rf"^pairs\[0\] must be two lists of words, got {found}$", join, [pair])
    refused(ValueError, r"^pairs\[0\] must be two lists of words, got 1 things$", join, [(["me"],)])
    words = [(["a"], ["b"]), (["me"], "la")]
    refused(
        TypeError, r"^pairs\[1\]\[1\] must be a list of words, got the string 'la'$", join, words
    )
    refused(
        TypeError, r"^pairs\[0\]\[0\]\[1\] must be a string, got int$", join, [(["me", 3], ["la"])]
    )
    long = r"^pairs\[0\] must have at most 10 pieces \(overflow='truncate' takes longer ones\), got 12$"
    refused(ValueError, long, join, PAIRS, max_length=10)
    refused(
        ValueError,
        r"^max_length must leave room beside the special pieces, got 3$",
        join,
        PAIRS,
        max_length=3,
    )
    refused(ValueError, r"^overflow must be one of 'error', 'trun", join, PAIRS, overflow="window")
    refused(
        TypeError,
        r"^tokenizer must be of transformers and join pairs, got NoneType",
        align_pairs,
        PAIRS,
        None,
    )
    refused(
        TypeError, r"^tokenizer must be .* join pairs, got \[7\] twice to", join, PAIRS, OneOnly()
    )
