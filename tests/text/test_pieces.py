"""Words and their pieces: labels do not shift, whatever the words."""

import pytest
import sentencepiece
import torch
from checks import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import word_piece_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from toys import own_words
from transformers import PreTrainedTokenizerFast

from polyembed.text import Pieces, align_words
from polyembed.text.pieces import special_pieces, word_opener

TOKENIZER = word_piece_tokenizer()
ANY_WORD = st.text(min_size=0, max_size=6) | st.sampled_from(
    ["me", "gusta", "cancion", "\u200b", "", " ", "\ud800"]
)


def test_pieces_of_words():
    pieces = align_words([["me", "gusta"], [], ["canciones"]], TOKENIZER)
    assert pieces.piece_ids.tolist() == [[2, 5, 6, 7, 3], [2, 3, 0, 0, 0], [2, 1, 3, 0, 0]]
    assert pieces.word_index.tolist() == [[-1, 0, 1, 1, -1], [-1] * 5, [-1, 0, -1, -1, -1]]
    assert pieces.piece_mask.sum(1).tolist() == [5, 2, 3]
    pieces.check()


def test_a_tokenizer_that_does_not_know_the_letter_a():
    """Regression: special pieces were looked for around that letter."""
    rules = Tokenizer(models.BPE({"<s>": 0, "</s>": 1, "ሰ": 2, "ላ": 3, "ሰላ": 4}, [("ሰ", "ላ")]))
    rules.post_processor = processors.TemplateProcessing(
        "<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    amharic = PreTrainedTokenizerFast(tokenizer_object=rules, bos_token="<s>", eos_token="</s>")
    assert special_pieces(amharic) == ((0,), (1,))
    assert word_opener(amharic) == ""
    assert align_words([["ሰላ", "a", "ላ"]], amharic).piece_ids.tolist() == [[0, 4, 1, 3, 1]]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(ANY_WORD, max_size=6), max_size=4))
def test_every_word_has_its_pieces_and_no_others(sentences: list[list[str]]):
    pieces = align_words(sentences, TOKENIZER)
    pieces.check()
    for row, words in enumerate(sentences):
        index = pieces.word_index[row]
        assert sorted(set(index.tolist()) - {-1}) == list(range(len(words)))
        for number, word in enumerate(words):
            alone = align_words([[word]], TOKENIZER)
            assert torch.equal(
                pieces.piece_ids[row][index == number], alone.piece_ids[0][alone.word_index[0] == 0]
            )
        special = pieces.piece_ids[row][(index == -1) & pieces.piece_mask[row]]
        assert special.tolist() == [2, 3]


def byte_level(*, add_prefix_space: bool) -> PreTrainedTokenizerFast:
    """Return a tokenizer like RoBERTa's or ModernBERT's.

    A word after a space has other pieces than a word without a space.
    """
    rules = Tokenizer(models.BPE())
    rules.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet, show_progress=False)
    rules.train_from_iterator(["me gusta la cancion"] * 5, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=rules)


@pytest.mark.parametrize("add_prefix_space", [False, True])
def test_words_are_cut_as_inside_a_sentence(add_prefix_space: bool):
    """Without a space, "gusta" would have the pieces of a word's continuation."""
    tokenizer = byte_level(add_prefix_space=add_prefix_space)
    pieces = align_words([["me", "gusta", "la"]], tokenizer)
    expected = tokenizer(" me gusta la", add_special_tokens=False)["input_ids"]
    assert pieces.piece_ids.tolist() == [expected]
    assert tokenizer.convert_ids_to_tokens(expected)[-1] == "\u0120la"
    assert word_opener(tokenizer) == ("" if add_prefix_space else " ")


def test_sentencepiece(data_folder):
    model = data_folder / "subwords" / "bpemb_en" / "en.wiki.bpe.vs1000.model"
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    words = ["hello", "", "世界", "song"]
    pieces = align_words([words, ["a"]], processor)
    pieces.check()
    for number, word in enumerate(words):
        own = pieces.piece_ids[0][pieces.word_index[0] == number].tolist()
        whole = processor.encode(word) or [processor.unk_id()]
        opens = len(whole) > 1 and processor.id_to_piece(whole[0]) == "\u2581"
        assert own == whole[opens:], "a piece that is only a space is of no word"
    assert special_pieces(processor) == ((), ())


LONG = [["me"], ["me", "gusta", "cancion", "a"]]  # 3 and 9 pieces, including special pieces


def test_truncated_words_have_no_pieces_and_windows_are_for_the_encoder():
    pieces = align_words(
        LONG, TOKENIZER, max_length=7, overflow="truncate"
    )  # not all pieces of "cancion" fit
    assert pieces.word_index[1].tolist() == [-1, 0, 1, 1, -1]
    whole = align_words(LONG, TOKENIZER, max_length=9)
    found = align_words(LONG, TOKENIZER, max_length=5, overflow="window")
    assert all(map(torch.equal, whole[:3], found[:3]))


@own_words
@pytest.mark.parametrize(
    ("index", "text"),
    [
        ([[-1, 0, 2, -1]], "count words 0, 1, 2, .*, got another order or a gap"),
        ([[0, 1, 2, 3]], "be -1 where piece_mask is off, got a word"),
        ([[0, 1, 2]], r"have shape \(1, 4\), got \(1, 3\)"),
    ],
)
def test_numbers_of_words_are_checked(index: list[list[int]], text: str):
    mask = torch.tensor([[True, True, True, False]])
    good = Pieces(mask.long(), mask, torch.tensor([[0, -1, 1, -1]]))
    good.check()
    bad = good._replace(word_index=torch.tensor(index))
    refused(ValueError, f"^word_index must {text}$", bad.check)


@own_words
@pytest.mark.parametrize(
    ("sentences", "options", "error", "message"),
    [
        ("me", {}, TypeError, "sentences must be a list of words, got the string 'me'"),
        (["me"], {}, TypeError, r"sentences\[0\] must be a list of words, got the string 'me'"),
        ([["me", 3]], {}, TypeError, r"sentences\[0\]\[1\] must be a string, got int"),
        ([], {"tokenizer": None}, TypeError, "tokenizer must be of transformers or .*, got NoneT"),
        ([], {"overflow": "wrap"}, ValueError, "overflow must be one of 'error', 'truncate', "),
        ([], {"max_length": 2}, ValueError, "max_length must leave room .*, got 2"),
        (
            LONG,
            {"max_length": 8},
            ValueError,
            "sentence 'me gusta cancion a' must have at most 8 .*, got 9",
        ),
        (
            LONG,
            {"tokenizer": word_piece_tokenizer(8)},
            ValueError,
            "sentence 'me gusta cancion a' must have at most 8 .*, got 9",
        ),
    ],
)
def test_bad_input(sentences, options, error: type[Exception], message: str):
    options = {"tokenizer": TOKENIZER, **options}
    refused(error, f"^{message}", align_words, sentences, **options)
