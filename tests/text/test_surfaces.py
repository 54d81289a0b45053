"""The text of pieces, for every way in which tokenizers mark the edges of words."""

import io

import sentencepiece
from checks import refused
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import slow_tokenizer, word_piece_tokenizer
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from polyembed.text.surfaces import piece_surfaces, word_text


def wrap(model, **options) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model), **options)


def test_word_piece():
    pieces = ["[UNK]", "[unused7]", "gus", "##ta", "#", "##", "###"]
    tokenizer = wrap(
        models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"),
        unk_token="[UNK]",
    )
    texts = ("gus", True), ("ta", False), ("#", True), ("##", True), ("#", False)
    assert piece_surfaces(tokenizer) == [None, None, *texts]


def test_unigram_and_added_pieces():
    pieces = [("<unk>", 0.0), ("\u2581", -1.0), ("\u2581me", -1.0), ("me", -1.0), ("<0xE2>", -9.0)]
    tokenizer = wrap(models.Unigram(pieces, unk_id=0, byte_fallback=True), unk_token="<unk>")
    tokenizer.add_tokens(["added", AddedToken("<mask>", special=True)])
    texts = ("", True), ("me", True), ("me", False)
    assert piece_surfaces(tokenizer) == [None, *texts, None, None, None]


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), min_size=1))
def test_byte_level(text: str):
    """Each text is one piece of bytes, in the notation of the tokenizers package."""
    rules = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    ((piece, _),) = rules.pre_tokenize_str(text)
    pieces = dict.fromkeys(["\u0120me", "Ã", piece])  # one byte of two is not a text
    tokenizer = wrap(models.BPE({piece: i for i, piece in enumerate(pieces)}, []))
    found = piece_surfaces(tokenizer)
    assert found[:2] == [("me", True), None]
    assert found[-1] == (text.removeprefix(" "), text.startswith(" "))


def test_slow_tokenizers_and_ends_of_words(tmp_path):
    tokenizer = slow_tokenizer(tmp_path)
    found = piece_surfaces(tokenizer)
    assert len(found) == len(tokenizer)
    ids = tokenizer.get_vocab()
    assert found[ids["me</w>"]] == ("me", True)
    assert found[ids["g"]] == ("g", False)
    assert found[ids["<pad>"]] is None


def test_sentencepiece():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["me gusta la cancion"] * 20),
        model_writer=model,
        vocab_size=30,
        hard_vocab_limit=False,
        minloglevel=3,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    found = piece_surfaces(processor)
    assert found[:3] == [None] * 3
    for i in range(3, len(found)):
        piece = processor.id_to_piece(i)
        assert found[i] == (piece.removeprefix("\u2581"), piece.startswith("\u2581"))


def test_word_text():
    tokenizer = word_piece_tokenizer()
    assert word_text("Ñu", tokenizer) == "Ñu"
    tokenizer.backend_tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFD(), normalizers.Lowercase()]
    )
    assert word_text("Ñu", tokenizer) == "n\u0303u"
    assert word_text("\ud800a", tokenizer) == "\ud800a"
    tokenizer.backend_tokenizer.normalizer = normalizers.Prepend("\u2581")
    assert word_text("me", tokenizer) == "me"


def test_a_vocabulary_without_marks_is_refused():
    words = wrap(models.WordLevel({"[UNK]": 0, "me": 1}, unk_token="[UNK]"), unk_token="[UNK]")
    rule = r"^tokenizer must mark the edges of words by ##, \u2581, </w> or \u0120, got none"
    refused(ValueError, rule, piece_surfaces, words)
