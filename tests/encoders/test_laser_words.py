"""The five word encoders of van der Heijden 2019 against their equations in plain Python."""

import oracles
import pytest
import torch
from checks import refused
from laser_files import small_encoder
from toys import own_words, toy_bpe_tokenizer

import polyembed as pe
from polyembed.encoders import LaserEncoder
from polyembed.text import (
    FastBPETokenizer,
    PieceDictionary,
    SentencePieceTokenizer,
)
from polyembed.text.laser import open_sentencepiece

SENTENCES = [["Me", "gusta", "that", "song", "cañón"], [], ["x" * 50, "", "SONG"], ["me"]]
TOKENIZER = toy_bpe_tokenizer()


def words(name: str, **options) -> torch.nn.Module:
    encoder = small_encoder().double()
    build = {
        "BPEBow": lambda: pe.encoders.BPEBow(encoder.embed_tokens, TOKENIZER, **options),
        "BPEGRU": lambda: pe.encoders.BPEGRU(
            encoder.embed_tokens, TOKENIZER, hidden_size=7, **options
        ),
        "LaserTop": lambda: pe.encoders.LaserTop(encoder, TOKENIZER, **options),
        "LaserElmo": lambda: pe.encoders.LaserElmo(encoder, TOKENIZER, **options),
    }
    module = build[name]().double()
    for parameter in ("gamma", "mix.gamma", "mix.scores"):
        if parameter in dict(module.named_parameters()):
            torch.nn.init.normal_(module.get_parameter(parameter))
    return module


NAMES = ["BPEBow", "BPEGRU", "LaserTop", "LaserElmo"]


def by_equations(module: torch.nn.Module, pieces: pe.Pieces, row: int) -> list[list[float]]:
    """The vectors of one sentence's pieces, before a word's are pooled."""
    valid = pieces.piece_mask[row]
    ids = pieces.piece_ids[row][valid]
    if isinstance(module, pe.encoders.BPEBow):
        return module.embedding(ids).tolist()
    states = module.encoder.hidden_states(ids[None])[1:]
    forwards, backwards = zip(
        *[(x[0, :, :3].tolist(), x[0, :, 3:].tolist()) for x in states], strict=True
    )
    if isinstance(module, pe.encoders.LaserTop):
        return oracles.laser_layer(forwards[-1], backwards[-1], module.gamma.item())
    return oracles.laser_elmo(
        list(forwards),
        list(backwards),
        module.mix.gamma.item(),
        module.mix.scores.detach().tolist(),
    )


@pytest.mark.parametrize("name", ["BPEBow", "LaserTop", "LaserElmo"])
def test_words_are_pooled_pieces(name: str) -> None:
    module = words(name)
    pieces, mask = module.encode(SENTENCES)
    found = module(pieces)
    assert found.shape == (4, 5, module.embedding_dim)
    for row in range(4):
        index = pieces.word_index[row][pieces.piece_mask[row]].tolist()
        pooling = "mean" if name == "BPEBow" else "max"
        expected = oracles.pool_words(by_equations(module, pieces, row), index, 5, pooling)
        torch.testing.assert_close(found[row], torch.tensor(expected, dtype=torch.float64))
    assert torch.equal(found, module(pieces._replace(num_words=None))), (
        "words are counted by the pieces too"
    )
    assert not found[~mask].any()


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_gru_reads_each_word_anew(bidirectional: bool) -> None:
    module = words("BPEGRU", bidirectional=bidirectional)
    pieces, _ = module.encode(SENTENCES)
    found = module(pieces)

    def states(xs: list[list[float]], end: str) -> list[list[float]]:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        return oracles.gru(xs, *(getattr(module.gru, f"{name}_l0{end}").tolist() for name in names))

    for row in range(4):
        for word in range(5):
            xs = module.embedding(pieces.piece_ids[row][pieces.word_index[row] == word]).tolist()
            both = (
                [states(xs, ""), states(xs[::-1], "_reverse")]
                if bidirectional
                else [states(xs, "")]
            )
            tops = [max(column) for one in both for column in zip(*one, strict=True)]
            expected = torch.tensor(tops or [0.0] * module.embedding_dim, dtype=torch.float64)
            torch.testing.assert_close(found[row, word], expected)


def test_pieces_of_a_word_need_not_be_adjacent_on_a_device(monkeypatch) -> None:
    """The order of words is checked on the CPU alone."""
    module = words("BPEGRU")
    monkeypatch.setattr("polyembed.encoders.laser.words.check_pieces", lambda pieces: None)
    ids, index = torch.tensor([[4, 5, 6, 7]]), torch.tensor([[1, 0, 1, 0]])
    found = module(pe.Pieces(ids, ids > 0, index, 2))
    order = torch.tensor([1, 3, 0, 2])
    expected = module(pe.Pieces(ids[:, order], ids > 0, index[:, order], 2))
    torch.testing.assert_close(found, expected)


def test_the_context_counts_for_states_alone() -> None:
    for name in NAMES:
        module = words(name)
        one, other = (module(module.pieces([["song", word]]))[0, 0] for word in ("me", "gusta"))
        assert torch.equal(one, other) == (name in ("BPEBow", "BPEGRU"))


def test_the_end_of_the_sentence_takes_part() -> None:
    module = words("LaserTop")
    pieces = module.pieces([["song"]])
    assert pieces.piece_ids[0, -1] == TOKENIZER.dictionary.end_id
    bare = pe.Pieces(*(part[:, :-1] for part in pieces[:3]))
    assert not torch.equal(module(pieces), module(bare))


TRAINS = {
    ("BPEBow", "none"): {"embedding.weight"},
    ("BPEBow", "embeddings"): set(),
    ("BPEGRU", "embeddings"): {
        f"gru.{name}_l0" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    },
    ("LaserTop", "all"): {"gamma"},
    ("LaserElmo", "all"): {"mix.gamma", "mix.scores"},
}


@pytest.mark.parametrize(("name", "freeze"), TRAINS)
def test_what_is_frozen_does_not_train(name: str, freeze: str) -> None:
    module = words(name, freeze=freeze)
    assert {key for key, value in module.named_parameters() if value.requires_grad} == TRAINS[
        name, freeze
    ]
    if name.startswith("Laser"):
        frozen = {
            key
            for key, p in words(name, freeze="embeddings").named_parameters()
            if not p.requires_grad
        }
        assert frozen == {"encoder.embed_tokens.weight"}


def test_a_frozen_encoder_keeps_no_graph() -> None:
    module = words("LaserTop", freeze="all")
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.shape) or x, lambda x: x):
        module(module.pieces(SENTENCES)).sum().backward()
    assert module.gamma.grad is not None
    assert all(6 not in shape for shape in kept), "states of both directions are kept"


def test_one_dictionary_is_saved_once(tmp_path) -> None:
    encoder = small_encoder()
    tokenizer = FastBPETokenizer(TOKENIZER.merges, encoder.dictionary)
    pe.encoders.LaserTop(encoder, tokenizer).save_pretrained(tmp_path / "saved")
    assert len(list((tmp_path / "saved").glob("pieces-*.json"))) == 1
    loaded = pe.encoders.LaserTop.from_pretrained(tmp_path / "saved")
    assert loaded.encoder.dictionary is loaded.tokenizer.dictionary


def test_saved_with_a_real_sentencepiece_model(tmp_path, data_folder) -> None:
    model = open_sentencepiece(
        data_folder / "subwords/sentencepiece_wiki8k/nlwiki.8k.2023-11-17.model"
    )
    tokenizer = SentencePieceTokenizer(model)
    encoder = LaserEncoder(
        len(tokenizer.dictionary), 4, 3, num_layers=2, dictionary=tokenizer.dictionary
    )
    module = pe.encoders.LaserElmo(encoder, tokenizer).eval()
    module.save_pretrained(tmp_path / "saved")
    loaded = pe.encoders.LaserElmo.from_pretrained(tmp_path / "saved")
    sentences = [["De", "Grote", "Markt", "in", "Groningen", "🙂"], []]
    (pieces, _), (other, _) = module.encode(sentences), loaded.encode(sentences)
    assert all(torch.equal(one, two) for one, two in zip(pieces[:3], other[:3], strict=True))
    assert torch.equal(loaded(other), module(pieces))


def test_a_word_of_ten_thousand_characters() -> None:
    module = words("BPEGRU").float()
    pieces, _ = module.encode([["me", "ab" * 5000], ["song"]])
    assert pieces.piece_ids.shape[1] > 10_000
    found = module(pieces)
    assert found.isfinite().all()
    torch.testing.assert_close(found[1:, :1], module(module.pieces([["song"]])))


@own_words
def test_bad_arguments_are_refused() -> None:
    encoder = small_encoder()
    refused(
        TypeError,
        r"^encoder must be a LaserEncoder, got Embedding$",
        pe.encoders.LaserTop,
        encoder.embed_tokens,
    )
    refused(
        TypeError,
        r"^embedding must be an nn.Embedding of pieces .*, got LaserEncoder$",
        pe.encoders.BPEBow,
        encoder,
    )
    with pytest.raises(
        ValueError, match=r"^freeze must be one of 'none', 'embeddings', got 'all'$"
    ):
        pe.encoders.BPEGRU(encoder.embed_tokens, freeze="all")
    with pytest.raises(
        ValueError, match=r"^freeze must be one of 'none', 'embeddings', 'all', got 'some'$"
    ):
        pe.encoders.LaserElmo(encoder, freeze="some")
    with pytest.raises(ValueError, match=r"^hidden_size must be a positive integer, got 0$"):
        pe.encoders.BPEGRU(encoder.embed_tokens, hidden_size=0)
    with pytest.raises(
        TypeError, match=r"^tokenizer must be given to cut words into pieces, got None$"
    ):
        pe.encoders.LaserTop(encoder).encode([["me"]])
    for build in (
        lambda: pe.encoders.LaserTop(encoder, "laser2"),
        lambda: pe.encoders.BPEGRU(encoder.embed_tokens, "laser2"),
    ):
        refused(TypeError, r"^tokenizer must be a LaserTokenizer, got str$", build)
    other = FastBPETokenizer([("a", "b")], PieceDictionary.from_pieces(["a@@", "b@@"]))
    for build in (
        lambda: pe.encoders.LaserTop(encoder, other),
        lambda: pe.encoders.BPEBow(encoder.embed_tokens, other),
    ):
        refused(ValueError, r"^tokenizer must have a dictionary of 23 pieces, got 6$", build)


@own_words
@pytest.mark.parametrize("name", ["BPEGRU", "LaserTop"])
def test_bad_pieces_are_refused(name: str) -> None:
    module = words(name)
    pieces = module.pieces([["me", "song"]])
    with pytest.raises(ValueError, match=r"_ids must be in \[0, 23\), got ids outside$"):
        module(pieces._replace(piece_ids=pieces.piece_ids + 23))
    refused(
        TypeError,
        r"^piece_mask must be bool",
        module,
        pieces._replace(piece_mask=pieces.piece_mask.long()),
    )
    with pytest.raises(ValueError, match=r"^word_index must count words 0, 1, 2, ..."):
        module(pieces._replace(word_index=pieces.word_index.clamp(min=1)))
    with pytest.raises(ValueError, match=r"^piece_ids must have the axes \(batch, piece\)"):
        module(pe.Pieces(*(part[0] for part in pieces[:3])))
