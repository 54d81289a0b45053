"""LASER's tokenisations: fastBPE against a loop, SentencePiece against itself, empty words."""

import random

import oracles
import pytest
import torch
from checks import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import own_words, toy_bpe_tokenizer

from polyembed.text import (
    FastBPETokenizer,
    PieceDictionary,
    SentencePieceTokenizer,
)
from polyembed.text.laser import open_sentencepiece

TOKENIZER = toy_bpe_tokenizer()
UNKNOWN = TOKENIZER.dictionary.unknown_id
END = TOKENIZER.dictionary.end_id


def learned_merges(count: int = 40, seed: int = 0) -> list[tuple[str, str]]:
    """Return merges that join pieces of earlier merges, as in training."""
    draw = random.Random(seed)
    inside, final = list("abcé"), [letter + "</w>" for letter in "abcé"]
    merges: dict[tuple[str, str], None] = {}
    while len(merges) < count:
        pair = (draw.choice(inside), draw.choice(inside + final))
        if sum(map(len, pair)) < 12 and pair not in merges:
            merges[pair] = None
            (final if pair[1].endswith("</w>") else inside).append("".join(pair))
    return list(merges)


MERGES = learned_merges()


def outcomes(merges: list[tuple[str, str]]) -> list[str]:
    pieces = dict.fromkeys(part for a, b in merges for part in (a, b, a + b))
    return [piece[:-4] if piece.endswith("</w>") else piece + "@@" for piece in pieces]


@settings(max_examples=100, deadline=None)
@given(st.text("abcéz", min_size=1, max_size=12), st.integers(0, 3))
def test_merges_are_fastbpes(word: str, dropped: int):
    kept = [piece for i, piece in enumerate(outcomes(MERGES)) if i % 3 != dropped - 1]
    dictionary = PieceDictionary.from_pieces(kept)
    for kinds in (kept, kept[::2], []):
        tokenizer = FastBPETokenizer(
            MERGES, dictionary, vocabulary=None if kinds is kept else kinds
        )
        assert tokenizer.cut_word(word) == dictionary.ids(oracles.fast_bpe(word, MERGES, {*kinds}))


def test_words_keep_their_numbers():
    pieces = TOKENIZER.pieces([["Me", "gusta", "THAT"], [], ["\u200b", "song"]])
    names = TOKENIZER.dictionary.ids(["me", "gust@@", "a", "that", "song"])
    assert pieces.piece_ids.tolist() == [
        [*names[:4], END],
        [END, 1, 1, 1, 1],
        [UNKNOWN, names[4], END, 1, 1],
    ]
    assert pieces.word_index.tolist() == [[0, 1, 1, 2, -1], [-1] * 5, [0, 1, -1, -1, -1]]
    pieces.check()
    assert TOKENIZER.pieces([]).piece_ids.shape == (0, 0)
    assert TOKENIZER.text_pieces(["", "  \t\n"]).piece_ids.tolist() == [[END], [END]]


@pytest.mark.parametrize(
    ("word", "ids", "index"),
    [
        *((word, [UNKNOWN], [1]) for word in ("", " ", "\u200b", "\ud800", "\U000e0001")),
        ("me—song", None, [1, 1, 1]),
    ],
)
def test_a_word_keeps_its_number_whatever_the_preparation_does(
    word: str, ids: list[int] | None, index: list[int]
):
    pieces = TOKENIZER.pieces([["me", word, "me"]])
    assert pieces.word_index.tolist() == [[0, *index, 2, -1]]
    assert ids is None or pieces.piece_ids.tolist() == [[4, *ids, 4, END]]


def test_whole_sentences_go_through_moses():
    dictionary = PieceDictionary.from_pieces(["me", "song", ",", "!", "(", ")", "&"])
    merges = [("m", "e</w>"), ("s", "o"), ("n", "g</w>"), ("so", "ng</w>")]
    cut = FastBPETokenizer(merges, dictionary).cut_text("Me, (song) & !")
    assert dictionary.ids(["me", ",", "(", "song", ")", "&", "!"]) == cut.ids
    assert cut.owners == [0, 1, 2, 3, 4, 5, 6]


def test_a_hook_before_lower_casing():
    dictionary = PieceDictionary.from_pieces(["a", "b@@", "b"])
    tokenizer = FastBPETokenizer(
        [("m", "e</w>")], dictionary, transform=lambda text: text.replace("Ω", "A b ")
    )
    assert tokenizer.cut_word("Ω") == tokenizer.cut_text("Ω").ids == dictionary.ids(["a", "b"])


@own_words
def test_what_cannot_be_cut_is_refused(tmp_path):
    dictionary = PieceDictionary.from_pieces(["a@@", "b"])
    rule = r"^merges\[1\] must be two pieces, of which only the second may end in"
    for pair in (("a", ""), ("a",), ("a</w>", "b")):
        refused(ValueError, rule, FastBPETokenizer, [("a", "b"), pair], dictionary)
    foreign = PieceDictionary.from_pieces(["some@@", "thing", "else"])
    rule = r"^dictionary must hold the pieces that the merges make, got 0 of 3"
    refused(ValueError, rule, FastBPETokenizer, [("a", "b")], foreign)
    rule = r"^sentences\[0\] must be a list of words, got the string 'me'$"
    refused(TypeError, rule, TOKENIZER.pieces, ["me"])
    (tmp_path / "x.spm").write_bytes(b"no model")
    rule = r"x\.spm must be a SentencePiece model, got"
    refused(ValueError, rule, open_sentencepiece, tmp_path / "x.spm")


SENTENCES = {
    "arwiki": "تأسست المدينة في القرن العاشر .",
    "dewiki": "Die Straße führt über den Fluss , sagte er .",
    "eswiki": "Me gusta la canción que suena en Zaragoza .",
}


def real(data_folder, name: str) -> SentencePieceTokenizer:
    path = data_folder / "subwords" / "sentencepiece_wiki8k" / f"{name}.8k.2023-11-17.model"
    if not path.exists():
        pytest.skip(f"no {path}")
    return SentencePieceTokenizer(open_sentencepiece(path))


@pytest.mark.parametrize("name", SENTENCES)
def test_real_models_are_mapped_by_name(data_folder, name: str):
    tokenizer = real(data_folder, name)
    model, dictionary = tokenizer.model, tokenizer.dictionary
    shuffled = dictionary.pieces()[4:]
    random.Random(0).shuffle(shuffled)
    other = SentencePieceTokenizer(model, PieceDictionary.from_pieces(shuffled))
    text = SENTENCES[name]
    expected = model.encode(text.lower(), out_type=str)
    for one in (tokenizer, other):
        names = one.dictionary.pieces()
        ids = one.text_pieces([text]).piece_ids[0].tolist()
        assert [names[i] if i != UNKNOWN else None for i in ids] == [
            *(piece if piece in one.dictionary else None for piece in expected),
            "</s>",
        ]
    assert tokenizer.text_pieces([text]).piece_ids.ne(other.text_pieces([text]).piece_ids).any()


@pytest.mark.parametrize("name", SENTENCES)
def test_words_are_cut_as_their_sentence_is(data_folder, name: str):
    tokenizer = real(data_folder, name)
    words = [word for word in SENTENCES[name].split() if word not in (",", ".")]
    pieces, whole = tokenizer.pieces([words]), tokenizer.text_pieces([" ".join(words)])
    assert all(torch.equal(one, other) for one, other in zip(pieces[:3], whole[:3], strict=True))
    assert int(pieces.word_index.max()) + 1 == len(words)


PREPARED = {
    "l’été, don’t, ‘hola’ y ‚adiós‘": 'l"été, don\'t, "hola" y "adiós"',
    "a\u00a0«\u00a0b\u00a0»\u00a0c, «d»": 'a "b" c, "d"',
    "me\u200bgusta\tla\x01canción\ud800 \ue000x\u200cy": "me gusta la canción x y",
    "uno , “dos” — tres …": 'uno , "dos" - tres ...',
}


@pytest.mark.parametrize("text", PREPARED)
def test_text_is_prepared_as_laser_encoders_does(data_folder, text: str):
    """Control characters become spaces, and quotes follow Moses 4.0, as in version 0.0.2."""
    tokenizer = real(data_folder, "eswiki")
    expected = tokenizer.model.encode(PREPARED[text], out_type=str)
    assert tokenizer.cut_text(text).ids == tokenizer.dictionary.ids(expected)


def test_any_word_has_pieces_and_ends_no_sentence(data_folder):
    tokenizer = real(data_folder, "eswiki")
    words = ["a b", "", "\u200b", "\ud800", "🙂", "x" * 10_000, "漢字", "▁", "<unk>", "</s>"]
    pieces = tokenizer.pieces([words])
    pieces.check()
    counts = torch.bincount(pieces.word_index[0] + 1)
    assert len(counts) == len(words) + 1
    assert counts[6] > 1000, "a long word keeps all its pieces"
    assert END not in pieces.piece_ids[0, :-1]
