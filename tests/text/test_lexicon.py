"""The lexicon: any words at all, and back."""

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
)  # lone surrogates, combining marks and nothing at all included
SENTENCES = st.lists(st.lists(WORDS, max_size=5), max_size=4)
AWKWARD = [
    "<pad>",
    "<unk>",
    "\u200b",
    "e\u0301",
    "é",
    "👩‍👩‍👧",
    "\ud83d",
    "\ude00",
    "\n",
    " ",
    "नमस्ते",
]
AWKWARD += ["İ", "ß", '"', "\\ud83d"]


@given(SENTENCES, SENTENCES)
def test_encoding_never_shifts(known: list[list[str]], sentences: list[list[str]]) -> None:
    lexicon = pe.Lexicon(word for words in known for word in words)
    ids, mask = lexicon.encode(sentences)
    assert ids.shape == mask.shape == (len(sentences), max(map(len, sentences), default=0))
    assert mask.sum(1).tolist() == [len(words) for words in sentences]
    assert ids.eq(0).equal(~mask)
    types = set(lexicon)
    expected = [[word if word in types else "<unk>" for word in words] for words in sentences]
    assert lexicon.decode(ids, mask) == expected


@given(st.lists(WORDS))
def test_ids_are_a_bijection(words: list[str]) -> None:
    words = [*words, *AWKWARD]
    lexicon = pe.Lexicon(words)
    types = list(dict.fromkeys(word for word in words if word))
    assert list(lexicon) == lexicon.words() == types
    assert [lexicon.id_of(word) for word in types] == list(range(2, len(lexicon)))
    assert len(lexicon) == 2 + len(types)


@given(st.lists(WORDS), st.booleans(), st.sampled_from([None, "NFC", "NFD", "NFKC", "NFKD"]))
@settings(max_examples=50)
def test_round_trip_through_a_file(
    tmp_path_factory, words: list[str], fallback: bool, form: str | None
) -> None:
    lexicon = pe.Lexicon([*words, *AWKWARD], lowercase_fallback=fallback, normalization=form)
    path = tmp_path_factory.mktemp("lexicon") / "lexicon.json"
    lexicon.save(path)
    for loaded in [pe.Lexicon.load(path)]:
        assert list(loaded) == list(lexicon)
        assert loaded.spelling.characters == lexicon.spelling.characters
        assert (loaded.lowercase_fallback, loaded.normalization) == (fallback, form)
    assert [file.name for file in path.parent.iterdir()] == ["lexicon.json"]


@given(st.lists(WORDS, min_size=1), WORDS)
def test_every_word_keeps_its_id_when_extended(words: list[str], new: str) -> None:
    lexicon = pe.Lexicon(words)
    before = lexicon.encode([words])[0]
    more = lexicon.extended([new, *words, new])
    assert torch.equal(more.encode([words])[0], before)
    assert torch.equal(lexicon.encode([words])[0], before)
    assert len(more) - len(lexicon) == (new != "" and new not in words)
    assert more.extends(lexicon)


def test_normal_forms() -> None:
    decomposed, composed = unicodedata.normalize("NFD", "é"), unicodedata.normalize("NFC", "é")
    assert len(pe.Lexicon([decomposed, composed])) == 4
    for form, kept in (("NFC", composed), ("NFD", decomposed)):
        lexicon = pe.Lexicon([decomposed, composed], normalization=form)
        assert list(lexicon) == [kept]
        assert lexicon.encode([[decomposed, composed]])[0].tolist() == [[2, 2]]
    lexicon = pe.Lexicon.from_sentences(
        [[decomposed, composed], ["x"]], min_count=2, normalization="NFC"
    )
    assert list(lexicon) == [composed]
    with pytest.raises(
        ValueError, match=r"^normalization must be one of 'NFC', 'NFD', 'NFKC', 'NFKD', got 'nfc'$"
    ):
        pe.Lexicon([], normalization="nfc")


def test_lowercase_fallback() -> None:
    strict, lenient = (pe.Lexicon(["song", "Me"], lowercase_fallback=on) for on in (False, True))
    words = [["Song", "SONG", "song", "me", "Me"]]
    assert strict.encode(words)[0].tolist() == [[1, 1, 2, 1, 3]]
    assert lenient.encode(words)[0].tolist() == [[2, 2, 2, 1, 3]]
    assert "SONG" in lenient
    assert "SONG" not in strict
    assert lenient.extended(["SONG"]) is lenient
    more = lenient.extended(["word", "WORD"])
    assert more.encode([["word", "WORD", "Word"]])[0].tolist() == [
        [4, 5, 1]
    ]  # the first lexicon's words alone


def test_from_sentences_counts() -> None:
    sentences = [["b", "a", "c"], ["a", "b", ""], ["a", "d", ""]]
    assert list(pe.Lexicon.from_sentences(sentences)) == ["a", "b", "c", "d"]
    assert list(pe.Lexicon.from_sentences(sentences, min_count=2)) == ["a", "b"]
    assert list(pe.Lexicon.from_sentences(sentences, max_size=3)) == ["a", "b", "c"]
    assert list(pe.Lexicon.from_sentences(sentences, max_size=1, min_count=9)) == []
    for empty in ([], [[]], [[""]]):
        refused(
            ValueError,
            r"^sentences must hold at least one word, got none$",
            pe.Lexicon.from_sentences,
            empty,
        )
    with pytest.raises(ValueError, match=r"^min_count must be a positive integer, got 0$"):
        pe.Lexicon.from_sentences(sentences, min_count=0)
    with pytest.raises(ValueError, match=r"^max_size must be a positive integer, got 0$"):
        pe.Lexicon.from_sentences(sentences, max_size=0)


@own_words
def test_what_is_no_sentence_and_no_word() -> None:
    lexicon = pe.Lexicon(["a", "b"])
    text = r"must be a list of words, got the string 'abc'$"
    for call in (pe.Lexicon, lexicon.extended, lexicon.encode):
        refused(TypeError, text, call, "abc")
    for call in (lexicon.encode, pe.Lexicon.from_sentences):
        refused(TypeError, text, call, ["abc"])
    refused(TypeError, r"^words\[1\] must be a string, got int$", pe.Lexicon, ["a", 7])
    for word in (None, 1, b"a"):
        refused(TypeError, r"^sentences\[0\]\[0\] must be a string, got", lexicon.encode, [[word]])
    refused(TypeError, r"^sentences must be a list of words, got NoneType$", lexicon.encode, None)
    refused(
        ValueError,
        r"^start must be at least 2: special ids have no spelling, got 1$",
        lexicon.words,
        1,
    )
    ids = torch.tensor([[2, 0, 3]])
    refused(
        TypeError, r"^ids must be int64 or int32, got torch.float32$", lexicon.decode, ids.float()
    )
    refused(TypeError, r"^mask must be bool", lexicon.decode, ids, ids)


def test_decode() -> None:
    lexicon = pe.Lexicon(["a", "b"])
    ids = torch.tensor([[2, 0, 3], [1, 99, 0]])
    mask = torch.tensor([[True, True, True], [True, False, False]])
    assert lexicon.decode(ids, mask) == [["a", "<pad>", "b"], ["<unk>"]]
    assert lexicon.decode(ids[:1]) == [["a", "b"]]
    refused(ValueError, r"^ids must be in \[0, 4\), got \[99\]$", lexicon.decode, ids)


def test_equal_lexicons_and_extensions() -> None:
    lexicon = pe.Lexicon(["a", "b"])
    more = lexicon.extended(["c"])
    assert more.extends(lexicon)
    assert more.extends(more)
    assert not lexicon.extends(more)
    same, others = (
        pe.Lexicon(["a", "b"]),
        [more, pe.Lexicon(["b", "a"]), pe.Lexicon(["a", "b"], characters="abc")],
    )
    others += [
        pe.Lexicon(["a", "b"], lowercase_fallback=True),
        pe.Lexicon(["a", "b"], normalization="NFC"),
    ]
    assert lexicon == same
    assert hash(lexicon) == hash(same)
    for other in others:
        assert lexicon != other
    assert lexicon.extended(["c"]) == more
    assert lexicon != ["a", "b"]


def test_characters_are_fixed_when_it_is_built() -> None:
    lexicon = pe.Lexicon(["ab", "b"])
    assert lexicon.num_characters == 4
    lexicon = lexicon.extended(["bc"])
    assert lexicon.num_characters == 4
    assert lexicon.spell(lexicon.spelling).tolist() == [[0, 0], [1, 0], [2, 3], [3, 0], [3, 1]]
    assert lexicon.spell(lexicon.spelling, start=4).tolist() == [[3, 1]]
    assert lexicon.spell(lexicon.spelling, start=5).shape == (0, 0)
    other = pe.Lexicon(["ab"], characters="xa")
    assert other.spell(other.spelling).tolist() == [[0, 0], [1, 0], [3, 1]]


def test_damaged_files_are_refused(tmp_path) -> None:
    path = tmp_path / "lexicon.json"
    pe.Lexicon(["a", "b"]).save(path)
    whole = json.loads(path.read_text("utf-8"))

    def load(content: object) -> None:
        path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
        pe.Lexicon.load(path)

    without_words = {key: value for key, value in whole.items() if key != "words"}
    damaged = ["", path.read_text("utf-8")[:-9], "[1]", "3", without_words]
    damaged += [
        {**whole, "words": words} for words in ("ab", 3, ["a", "a"], ["a", ""], ["a", 7], {"a": 2})
    ]
    for content in damaged:
        refused(ValueError, r"lexicon.json must hold a saved lexicon, got", load, content)
    path.write_bytes(b"\xff\xfe\xff")
    refused(
        ValueError,
        r"lexicon.json must hold a saved lexicon, got UnicodeDecodeError",
        pe.Lexicon.load,
        path,
    )
