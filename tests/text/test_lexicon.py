"""The lexicon: ids of any words, saving and loading."""

import json
import unicodedata

import pytest
import torch
from checks import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import own_words

import polyembed as pe

WORDS = st.text(
    st.characters(), max_size=8
)  # including lone surrogates, combining marks and the empty word
SENTENCES = st.lists(st.lists(WORDS, max_size=5), max_size=4)
AWKWARD = ["<pad>", "<unk>", "\u200b", "e\u0301", "é", "👩‍👩‍👧", "\ud83d", "\n", "İ", "\\ud83d"]


@given(SENTENCES, SENTENCES)
def test_encoding_never_shifts(known: list[list[str]], sentences: list[list[str]]):
    lexicon = pe.Lexicon(word for words in known for word in words)
    ids, mask = lexicon.encode(sentences)
    assert ids.shape == mask.shape == (len(sentences), max(map(len, sentences), default=0))
    assert mask.sum(1).tolist() == [len(words) for words in sentences]
    assert ids.eq(0).equal(~mask)
    types = list(dict.fromkeys(word for words in known for word in words if word))
    assert list(lexicon) == lexicon.words() == types
    expected = [[word if word in types else "<unk>" for word in words] for words in sentences]
    names = ["<pad>", "<unk>", *lexicon]
    rows = zip(ids, mask, strict=True)
    assert [[names[i] for i in row[kept].tolist()] for row, kept in rows] == expected


@given(st.lists(WORDS), st.booleans(), st.sampled_from([None, "NFC", "NFD", "NFKC", "NFKD"]))
@settings(max_examples=50)
def test_round_trip_through_a_file(
    tmp_path_factory, words: list[str], fallback: bool, form: str | None
):
    words += AWKWARD
    lexicon = pe.Lexicon(words, characters=words, lowercase_fallback=fallback, normalization=form)
    path = tmp_path_factory.mktemp("lexicon") / "lexicon.json"
    lexicon.save(path)
    assert pe.Lexicon.load(path) == lexicon


@given(st.lists(WORDS, min_size=1), WORDS)
def test_every_word_keeps_its_id_when_extended(words: list[str], new: str):
    lexicon = pe.Lexicon(words)
    before = lexicon.encode([words])[0]
    more = lexicon.extended([new, *words, new])
    assert torch.equal(more.encode([words])[0], before)
    assert torch.equal(lexicon.encode([words])[0], before)
    same = pe.Lexicon(words)
    assert (lexicon, hash(lexicon)) == (same, hash(same))
    for option in ({"characters": "\0"}, {"lowercase_fallback": True}, {"normalization": "NFC"}):
        assert pe.Lexicon(words, **option) != lexicon
    assert len(more) - len(lexicon) == (new != "" and new not in words)
    assert more.extends(lexicon)
    assert more.extends(more)
    assert lexicon.extends(more) == (more == lexicon)


def test_normal_forms():
    decomposed, composed = unicodedata.normalize("NFD", "é"), unicodedata.normalize("NFC", "é")
    assert len(pe.Lexicon([decomposed, composed])) == 4
    for form, kept in (("NFC", composed), ("NFD", decomposed)):
        lexicon = pe.Lexicon([decomposed, composed], normalization=form)
        assert list(lexicon) == [kept]
        assert lexicon.encode([[decomposed, composed]])[0].tolist() == [[2, 2]]
    corpus = [[decomposed, composed], ["x"]]
    assert list(pe.Lexicon.from_sentences(corpus, min_count=2, normalization="NFC")) == [composed]


def test_lowercase_fallback(tmp_path):
    strict, lenient = (pe.Lexicon(["song", "Me"], lowercase_fallback=on) for on in (False, True))
    words = [["Song", "SONG", "song", "me", "Me"]]
    assert strict.encode(words)[0].tolist() == [[1, 1, 2, 1, 3]]
    assert lenient.encode(words)[0].tolist() == [[2, 2, 2, 1, 3]]
    assert ("SONG" in lenient, "SONG" in strict) == (True, False)
    assert lenient.extended(["SONG"]) is lenient
    more = lenient.extended(["word", "WORD"])  # a word added later is not a lower-case form
    more.save(tmp_path / "saved")
    for lexicon in (more, pe.Lexicon.load(tmp_path / "saved")):
        assert lexicon.encode([["word", "WORD", "Word"]])[0].tolist() == [[4, 5, 1]]


def test_from_sentences_counts():
    sentences = [["b", "a", "c"], ["a", "b", ""], ["a", "d", ""]]
    for kept, options in (
        ("abcd", {}),
        ("ab", {"min_count": 2}),
        ("abc", {"max_size": 3}),
        ("", {"max_size": 1, "min_count": 9}),
    ):
        assert "".join(pe.Lexicon.from_sentences(sentences, **options)) == kept


LEXICON = pe.Lexicon(["a", "b"])


@own_words
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pe.Lexicon([], normalization="nfc"), ValueError, "normalization must be one of"),
        (lambda: pe.Lexicon("abc"), TypeError, "words must be a list of words, got the string"),
        (lambda: pe.Lexicon(["a", 7]), TypeError, r"words\[1\] must be a string, got int$"),
        (lambda: LEXICON.encode(["abc"]), TypeError, r"sentences\[0\] must be a list of words"),
        (lambda: pe.Lexicon.from_sentences(["abc"]), TypeError, r"sentences\[0\] must be a list"),
        (
            lambda: pe.Lexicon.from_sentences([[""]]),
            ValueError,
            "sentences must hold .*, got none$",
        ),
        (
            lambda: pe.Lexicon.from_sentences([["a"]], min_count=0),
            ValueError,
            "min_count must be a positive integer, got 0",
        ),
    ],
)
def test_what_is_no_sentence_no_word_and_no_id(call, error: type[Exception], message: str):
    refused(error, f"^{message}", call)


def test_characters_are_fixed_when_it_is_built():
    lexicon = pe.Lexicon(["ab", "b"]).extended(["bc"])
    assert lexicon.num_characters == 4
    assert lexicon.spell(lexicon.spelling).tolist() == [[0, 0], [1, 0], [2, 3], [3, 0], [3, 1]]
    assert lexicon.spell(lexicon.spelling, start=4).tolist() == [[3, 1]]
    assert lexicon.spell(lexicon.spelling, start=5).shape == (0, 0)


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "lexicon.json"
    pe.Lexicon(["a", "b"]).save(path)
    whole = json.loads(path.read_text("utf-8"))
    damaged = [json.dumps(whole)[:-9], "1", json.dumps({**whole, "words": ["a", "a"]})]
    damaged += [json.dumps({**whole, "words": words}) for words in (3, ["a", ""], ["a", 7])]
    for content in damaged:
        path.write_text(content)
        rule = "lexicon.json must hold a saved lexicon, got"
        refused(ValueError, rule, pe.Lexicon.load, path)
