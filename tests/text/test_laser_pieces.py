"""LASER's tokenisations: fastBPE's merges against a loop, SentencePiece against itself, words that are none."""

import random

import oracles
import pytest
import torch
from checks import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import own_words, toy_bpe_tokenizer

import polyembed as pe
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
    """Merges of pieces that earlier ones made, as training gives them."""
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
def test_merges_are_fastbpes(word: str, dropped: int) -> None:
    kept = [
        piece for i, piece in enumerate(outcomes(MERGES)) if not dropped or i % 3 != dropped - 1
    ]
    dictionary = PieceDictionary.from_pieces(kept)
    tokenizer = FastBPETokenizer(MERGES, dictionary)
    expected = oracles.fast_bpe(word, MERGES, set(kept))
    assert tokenizer.cut_word(word) == dictionary.ids(expected)


def test_merges_and_vocabularies_that_disagree() -> None:
    merges = [
        ("a", "b"),
        ("b", "c</w>"),
        ("ab", "c</w>"),
        ("a", "bc</w>"),
    ]  # a piece of two origins
    dictionary = PieceDictionary.from_pieces(["a@@", "ab@@", "c", "bc"])
    assert FastBPETokenizer(merges, dictionary).cut_word("abc") == dictionary.ids(["a@@", "bc"])
    fewer = FastBPETokenizer(merges, dictionary, vocabulary=["a@@", "ab@@", "c"])
    assert fewer.cut_word("abc") == dictionary.ids(
        oracles.fast_bpe("abc", merges, {"a@@", "ab@@", "c"})
    )


def test_words_keep_their_numbers() -> None:
    pieces = TOKENIZER.pieces([["Me", "gusta", "THAT"], [], ["\u200b", "song"]])
    names = TOKENIZER.dictionary.ids(["me", "gust@@", "a", "that", "song"])
    assert pieces.piece_ids.tolist() == [
        [*names[:4], END],
        [END, 1, 1, 1, 1],
        [UNKNOWN, names[4], END, 1, 1],
    ]
    assert pieces.word_index.tolist() == [[0, 1, 1, 2, -1], [-1] * 5, [0, 1, -1, -1, -1]]
    assert pieces.piece_mask.sum(1).tolist() == [5, 1, 3]
    pieces.check()


def test_words_that_are_kept_are_the_same_and_not_without_end(monkeypatch) -> None:
    tokenizer = toy_bpe_tokenizer()
    cut = []
    monkeypatch.setattr(
        tokenizer, "cut_word", lambda word: cut.append(word) or TOKENIZER.cut_word(word)
    )
    monkeypatch.setattr("polyembed.text.laser.MOST_KNOWN", 2)
    for words in (["me", "song", "me"], ["me", "that"], ["me", "song"]):
        assert torch.equal(tokenizer.pieces([words]).piece_ids, TOKENIZER.pieces([words]).piece_ids)
    assert cut == ["me", "song", "that", "me", "song"]


def test_no_sentences_and_no_words() -> None:
    assert TOKENIZER.pieces([]).piece_ids.shape == (0, 0)
    assert TOKENIZER.pieces([[]]).piece_ids.tolist() == [[END]]
    assert TOKENIZER.text_pieces([]).piece_ids.shape == (0, 0)
    assert TOKENIZER.text_pieces(["", "  \t\n"]).piece_ids.tolist() == [[END], [END]]


@pytest.mark.parametrize("word", ["", " ", "\n", "\u200b", "\ud800", "\0", "\U000e0001"])
def test_a_word_that_the_preparation_drops_is_unknown(word: str) -> None:
    pieces = TOKENIZER.pieces([["me", word, "me"]])
    assert pieces.piece_ids.tolist() == [[4, UNKNOWN, 4, END]]
    assert pieces.word_index.tolist() == [[0, 1, 2, -1]]


def test_what_one_word_becomes_stays_one_word() -> None:
    assert TOKENIZER.pieces([["me—song", "me song"]]).word_index.tolist() == [[0, 0, 0, 1, 1, -1]]


def test_punctuation_is_normalised_before_the_merges() -> None:
    dictionary = PieceDictionary.from_pieces(['"', ".@@", ".", "'"])
    tokenizer = FastBPETokenizer([("m", "e</w>")], dictionary, vocabulary=dictionary.pieces())
    assert tokenizer.cut_word("“") == dictionary.ids(['"'])
    assert tokenizer.cut_word("…") == dictionary.ids([".@@", ".@@", "."])
    assert tokenizer.cut_word("’") == dictionary.ids(['"'])


def test_whole_sentences_go_through_moses() -> None:
    dictionary = PieceDictionary.from_pieces(["me", "song", ",", "!", "(", ")", "&"])
    merges = [("m", "e</w>"), ("s", "o"), ("n", "g</w>"), ("so", "ng</w>")]
    cut = FastBPETokenizer(merges, dictionary).cut_text("Me, (song) & !")
    assert dictionary.ids(["me", ",", "(", "song", ")", "&", "!"]) == cut.ids
    assert cut.owners == [0, 1, 2, 3, 4, 5, 6]


def test_the_rules_of_a_language() -> None:
    dictionary = PieceDictionary.from_pieces([",@@", '"', ",", '"@@'])
    text = 'x", x'
    english, spanish = (
        FastBPETokenizer(
            [("m", "e</w>")], dictionary, vocabulary=dictionary.pieces(), language=language
        ).cut_text(text)
        for language in ("en", "es")
    )
    assert english.ids != spanish.ids  # only English moves the quote behind the comma


def test_a_hook_before_lower_casing(tmp_path) -> None:
    dictionary = PieceDictionary.from_pieces(["a", "b@@", "b"])
    tokenizer = FastBPETokenizer(
        [("m", "e</w>")], dictionary, transform=lambda text: text.replace("Ω", "A b ")
    )
    assert tokenizer.cut_word("Ω") == tokenizer.cut_text("Ω").ids == dictionary.ids(["a", "b"])
    assert tokenizer.pieces([["Ω", "a"]]).word_index.tolist() == [[0, 0, 1, -1]]
    with pytest.raises(
        TypeError, match=r"transform must be something that can be rebuilt .*, got function$"
    ):
        words_of(tokenizer).save_pretrained(tmp_path / "saved")


def words_of(tokenizer: FastBPETokenizer) -> pe.encoders.BPEBow:
    return pe.encoders.BPEBow(torch.nn.Embedding(len(tokenizer.dictionary), 2), tokenizer)


class Projection(pe.LSTMSequenceEncoder):
    """A transform with weights."""

    def __call__(self, text: str) -> str:
        return text


def test_a_transform_with_weights_is_not_saved(tmp_path) -> None:
    dictionary = TOKENIZER.dictionary
    tokenizer = FastBPETokenizer(TOKENIZER.merges, dictionary, transform=Projection(2))
    rule = r"must be a submodule, whose weights are saved, got Projection$"
    refused(TypeError, rule, words_of(tokenizer).save_pretrained, tmp_path / "saved")


def test_bad_merges_are_refused() -> None:
    dictionary = PieceDictionary.from_pieces(["a@@", "b"])
    rule = r"^merges\[1\] must be two new pieces, of which only the second may end in"
    for pair in (("a", ""), ("a",), ("a</w>", "b"), ("a", "</w>"), ("a", "b")):
        refused(ValueError, rule, FastBPETokenizer, [("a", "b"), pair], dictionary)
    foreign = PieceDictionary.from_pieces(["some@@", "thing", "else"])
    rule = r"^dictionary must hold the pieces that the merges make, got 0 of 3"
    refused(ValueError, rule, FastBPETokenizer, [("a", "b")], foreign)


@own_words
def test_what_can_be_read_only_once_is_read_once() -> None:
    sentences, texts = [["me", "song"], ["that"]], ["me song", "that"]
    found = TOKENIZER.pieces(iter(words) for words in sentences)
    assert torch.equal(found.piece_ids, TOKENIZER.pieces(sentences).piece_ids)
    assert torch.equal(
        TOKENIZER.text_pieces(iter(texts)).piece_ids, TOKENIZER.text_pieces(texts).piece_ids
    )


@own_words
def test_bad_sentences_are_refused() -> None:
    refused(
        TypeError,
        r"^sentences\[0\] must be a list of words, got the string 'me'$",
        TOKENIZER.pieces,
        ["me"],
    )
    refused(
        TypeError,
        r"^sentences\[0\]\[1\] must be a string, got NoneType$",
        TOKENIZER.pieces,
        [["me", None]],
    )
    refused(
        TypeError,
        r"^texts must be a list of words, got the string 'me'$",
        TOKENIZER.text_pieces,
        "me",
    )


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
def test_real_models_are_mapped_by_name(data_folder, name: str) -> None:
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
def test_words_are_cut_as_their_sentence_is(data_folder, name: str) -> None:
    tokenizer = real(data_folder, name)
    words = [word for word in SENTENCES[name].split() if word not in (",", ".")]
    pieces, whole = tokenizer.pieces([words]), tokenizer.text_pieces([" ".join(words)])
    assert all(torch.equal(one, other) for one, other in zip(pieces[:3], whole[:3], strict=True))
    assert int(pieces.word_index.max()) + 1 == len(words)


def test_real_models_take_any_word(data_folder) -> None:
    tokenizer = real(data_folder, "eswiki")
    words = [
        "a b",
        "",
        " ",
        "\u200b",
        "\ud800",
        "🙂",
        "STRASSE",
        "x" * 10_000,
        "漢字",
        "▁",
        "<unk>",
        "</s>",
    ]
    pieces = tokenizer.pieces([words])
    pieces.check()
    assert set(range(len(words))) == set(pieces.word_index[0].tolist()) - {-1}
    counts = torch.bincount(pieces.word_index[0] + 1)
    assert counts[8] > 1000, "a long word keeps all its pieces"
    assert (
        pieces.piece_ids[0, pieces.word_index[0] == 5].tolist()[-1]
        == tokenizer.dictionary.unknown_id
    )
    assert not (pieces.piece_ids[0, :-1] == tokenizer.dictionary.end_id).any(), (
        "no text ends a sentence"
    )
    tokenizer.text_pieces(words)


PREPARED = {
    "l’été, don’t, ‘hola’ y ‚adiós‘": 'l"été, don\'t, "hola" y "adiós"',
    "a\u00a0«\u00a0b\u00a0»\u00a0c, «d»": 'a "b" c, "d"',
    "me\u200bgusta\tla\x01canción\ud800 \ue000x\u200cy": "me gusta la canción x y",
    "uno , “dos” — tres …": 'uno , "dos" - tres ...',
}


@pytest.mark.parametrize("text", PREPARED)
def test_text_is_prepared_as_laser_encoders_does(data_folder, text: str) -> None:
    """Controls to spaces and the quotes of Moses 4.0, as the package of 0.0.2 has them."""
    tokenizer = real(data_folder, "eswiki")
    expected = tokenizer.model.encode(PREPARED[text], out_type=str)
    assert tokenizer.cut_text(text).ids == tokenizer.dictionary.ids(expected)


def test_case_may_be_kept(data_folder) -> None:
    model = open_sentencepiece(data_folder / "subwords" / "bpemb_en" / "en.wiki.bpe.vs1000.model")
    kept, lowered = (
        SentencePieceTokenizer(model, lowercase=lowercase) for lowercase in (False, True)
    )
    assert kept.cut_word("hello") == lowered.cut_word("hello") == lowered.cut_word("HELLO")
    assert kept.dictionary.unknown_id in kept.cut_word("HELLO"), "this model has no capitals"


def test_a_dictionary_of_another_model_is_refused(data_folder) -> None:
    german, arabic = real(data_folder, "dewiki"), real(data_folder, "arwiki")
    with pytest.raises(
        ValueError, match=r"^dictionary must hold the model's pieces, got \d+ of 7997$"
    ):
        SentencePieceTokenizer(german.model, arabic.dictionary)


def test_bad_models_are_refused(tmp_path) -> None:
    (tmp_path / "x.spm").write_bytes(b"no model")
    rule = r"x\.spm must be a SentencePiece model, got"
    refused(ValueError, rule, open_sentencepiece, tmp_path / "x.spm")
