"""Pairs of texts in one row, against tokenizers of transformers."""

from pathlib import Path

import pytest
from checks import refused
from tiny_models import slow_tokenizer, word_piece_tokenizer
from tokenizers import processors
from toys import own_words

from polyembed.text.pairs import align_pairs

PAIRS = [
    (["me", "gusta", "la", "cancion"], ["songs"]),
    (["a"], ["b", "c\ud83d", "gusta", "me", "me"]),
    ([], ["me", "la"]),
    (["me"], []),
    ([], []),
    (["me", "gusta", "la"] * 3, ["cancion", "songs"] * 3),
    (["me", "gusta", "la"] * 3, ["la", "gusta", "me"] * 3),
]


def bert(*, types: bool = True, doubled: bool = False):
    """Return a tokenizer with BERT's layout or, with a second separator, XLM-R's."""
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
    "slow": slow_tokenizer,
}


@pytest.mark.parametrize("make", TOKENIZERS.values(), ids=TOKENIZERS)
@pytest.mark.parametrize("max_length", [None, 9, 10])
def test_as_the_tokenizer_joins_them(tmp_path: Path, make, max_length: int | None):
    tokenizer = make(tmp_path)
    found = align_pairs(PAIRS, tokenizer, max_length=max_length, overflow="truncate")
    for row, (first, second) in enumerate(PAIRS):
        limit = {"truncation": "longest_first" if max_length else False, "max_length": max_length}
        batch = tokenizer([" ".join(first)], [" ".join(second).replace("\ud83d", "")], **limit)
        expected = {name: value[0] for name, value in batch.items()}
        valid = found.pieces.piece_mask[row]
        assert found.pieces.piece_ids[row][valid].tolist() == expected["input_ids"]
        assert (found.token_types is None) == ("token_type_ids" not in expected)
        if found.token_types is not None:
            assert found.token_types[row][valid].tolist() == expected["token_type_ids"]
            assert not found.token_types[row][~valid].any()
    found.pieces.check()


def test_pieces_are_numbered():
    pieces, types = align_pairs(PAIRS[:2], bert())
    assert pieces.word_index[0].tolist() == [-1, 0, 1, 2, 3, 4, 5, 6, -1, 7, 8, -1]
    assert types[0].tolist() == [0] * 9 + [1] * 3
    assert pieces.num_words == 9
    tokenizer = bert()
    pieces, _ = align_pairs([(["me", "?!"], ["[SEP]"])], tokenizer)
    assert pieces.num_words == 4
    align_pairs(PAIRS, tokenizer, max_length=8, overflow="truncate")
    assert tokenizer.backend_tokenizer.truncation is None, "other threads would see it"
    pieces, types = align_pairs([], bert())
    assert pieces.piece_ids.shape == types.shape == (0, 0)


@own_words
@pytest.mark.parametrize(
    ("pairs", "options", "error", "message"),
    [
        (["me"], {}, ValueError, r"pairs\[0\] must be two lists of words, got 'me'"),
        ([(["me"], "la")], {}, TypeError, r"pairs\[0\]\[1\] must be a list of words"),
        (PAIRS, {"max_length": -1}, ValueError, "max_length must be a positive integer, got -1"),
        (PAIRS, {"max_length": 3}, ValueError, "max_length must leave room beside .*, got 3"),
        (PAIRS, {"max_length": 8}, ValueError, "pair .* must have at most 8 .*, got 12"),
        (PAIRS, {"tokenizer": None}, TypeError, "tokenizer must be one of transformers, got None"),
    ],
)
def test_bad_input(pairs, options, error: type[Exception], message: str):
    refused(error, f"^{message}", align_pairs, pairs, **{"tokenizer": bert(), **options})
