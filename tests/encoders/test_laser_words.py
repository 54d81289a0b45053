"""The five word encoders of van der Heijden 2019 against their equations in plain Python."""

import operator
import re
from concurrent.futures import ThreadPoolExecutor

import oracles
import pytest
import torch
from checks import refused
from laser_files import small_encoder
from toys import toy_bpe_tokenizer

import polyembed as pe
from polyembed.encoders import BPEGRU, BPEBow, LaserElmo, LaserEncoder, LaserTop
from polyembed.text import FastBPETokenizer, PieceDictionary, SentencePieceTokenizer
from polyembed.text.laser import open_sentencepiece

SENTENCES = [["Me", "gusta", "that", "song", "cañón"], [], ["x" * 50, "", "SONG"], ["me"]]
TOKENIZER = toy_bpe_tokenizer()


NAMES = {cls.__name__: cls for cls in (BPEBow, BPEGRU, LaserTop, LaserElmo)}


def words(name: str, **options) -> torch.nn.Module:
    encoder = small_encoder().double()
    part = encoder if name.startswith("Laser") else encoder.embed_tokens
    options = {"hidden_size": 7, **options} if name == "BPEGRU" else options
    module = NAMES[name](part, TOKENIZER, **options).double()
    for key, parameter in module.named_parameters():
        if key in ("gamma", "mix.gamma", "mix.scores"):
            torch.nn.init.normal_(parameter)
    return module


def by_equations(module, pieces: pe.Pieces, row: int) -> list[list[float]]:
    """Return the vectors of one sentence's pieces, before the pooling to words."""
    valid = pieces.piece_mask[row]
    ids = pieces.piece_ids[row][valid]
    if isinstance(module, BPEBow):
        return module.embedding(ids).tolist()
    states = module.encoder.hidden_states(ids[None])[1:]
    forwards, backwards = zip(
        *[(x[0, :, :3].tolist(), x[0, :, 3:].tolist()) for x in states], strict=True
    )
    if isinstance(module, LaserTop):
        return oracles.laser_layer(forwards[-1], backwards[-1], module.gamma.item())
    gamma, scores = module.mix.gamma.item(), module.mix.scores.tolist()
    return oracles.laser_elmo(list(forwards), list(backwards), gamma, scores)


@pytest.mark.parametrize("name", ["BPEBow", "LaserTop", "LaserElmo"])
def test_words_are_pooled_pieces(name):
    module = words(name)
    pieces, mask = module.encode(SENTENCES)
    found = module(pieces)
    pooling = "mean" if name == "BPEBow" else "max"
    for row in range(4):
        index = pieces.word_index[row][pieces.piece_mask[row]].tolist()
        expected = oracles.pool_words(by_equations(module, pieces, row), index, 5, pooling)
        torch.testing.assert_close(found[row], torch.tensor(expected, dtype=torch.float64))
    assert torch.equal(found, module(pieces._replace(num_words=None)))
    assert not found[~mask].any()


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_gru_reads_each_word_anew(bidirectional):
    module = words("BPEGRU", bidirectional=bidirectional)
    pieces, _ = module.encode(SENTENCES)
    found = module(pieces)

    def states(xs, end):
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        return oracles.gru(xs, *(getattr(module.gru, f"{name}_l0{end}").tolist() for name in names))

    for row in range(4):
        for word in range(5):
            xs = module.embedding(pieces.piece_ids[row][pieces.word_index[row] == word]).tolist()
            both = [states(xs, "")]
            if bidirectional:
                both.append(states(xs[::-1], "_reverse"))
            tops = [max(column) for one in both for column in zip(*one, strict=True)]
            expected = torch.tensor(tops or [0.0] * module.embedding_dim, dtype=torch.float64)
            torch.testing.assert_close(found[row, word], expected)


@pytest.mark.parametrize(
    ("name", "freeze", "left"),
    [
        ("BPEBow", "embeddings", ""),
        ("BPEGRU", "embeddings", "gru"),
        ("LaserTop", "embeddings", "gamma|encoder.lstm"),
        ("LaserElmo", "all", "mix"),
    ],
)
def test_what_is_frozen_does_not_train(name, freeze, left):
    for key, value in words(name, freeze=freeze).named_parameters():
        assert value.requires_grad == (bool(left) and re.match(left, key) is not None)


def test_what_is_shared_is_frozen_after_loading_too(tmp_path):
    """Regression: a shared part was frozen or not as in the first of its modules."""
    encoder = small_encoder()
    parts = BPEBow(encoder.embed_tokens), LaserTop(encoder, freeze="all")
    pe.MetaEmbedding.concat(parts).save_pretrained(tmp_path)
    loaded = pe.MetaEmbedding.from_pretrained(tmp_path)
    trained = [name for name, value in loaded.named_parameters() if value.requires_grad]
    assert trained == ["embedders.1.gamma"]


def test_saved_with_a_real_sentencepiece_model(tmp_path, data_folder):
    """The encoder and the tokenizer share a dictionary, which is saved once."""
    path = "subwords/sentencepiece_wiki8k/nlwiki.8k.2023-11-17.model"
    tokenizer = SentencePieceTokenizer(open_sentencepiece(data_folder / path))
    dictionary = tokenizer.dictionary
    encoder = LaserEncoder(len(dictionary), 4, 3, num_layers=2, dictionary=dictionary)
    LaserElmo(encoder, tokenizer).save_pretrained(tmp_path / "saved")
    assert len(list((tmp_path / "saved").glob("pieces-*.json"))) == 1
    loaded = LaserElmo.from_pretrained(tmp_path / "saved")
    assert loaded.encoder.dictionary is loaded.tokenizer.dictionary


def test_threads_run_a_gru_in_half_precision():
    module = words("BPEGRU").bfloat16().eval()
    pieces, before = module.pieces(SENTENCES), [*module.gru.parameters()]
    expected = module(pieces)
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(found, expected) for found in pool.map(module, [pieces] * 300))
    assert all(map(operator.is_, module.gru.parameters(), before))


@pytest.mark.parametrize("name", ["BPEGRU", "LaserTop"])
def test_bad_pieces_are_refused(name):
    module = words(name)
    pieces = module.pieces([["me", "song"]])
    outside = pieces._replace(piece_ids=pieces.piece_ids + 23)
    refused(ValueError, r"_ids must be in \[0, 23\), got (2[3-9]|[34]\d)$", module, outside)
    module.tokenizer = None
    refused(TypeError, "^tokenizer must be given to cut words", module.encode, [["me"]])


OTHER = FastBPETokenizer([("a", "b")], PieceDictionary.from_pieces(["a@@", "b@@"]))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("BPEBow", {"freeze": "all"}, "^freeze must be one of 'none', 'e.* 'all'$"),
        ("LaserElmo", {"freeze": "some"}, "^freeze must be one of 'none', 'e"),
        ("BPEGRU", {"hidden_size": 0}, "^hidden_size must be a positive .* 0$"),
    ],
)
def test_bad_arguments_are_refused(name, options, message):
    refused(ValueError, message, words, name, **options)


def test_a_tokenizer_with_other_pieces_is_refused():
    message = "^tokenizer must have .* of 23 pieces, got 6$"
    refused(ValueError, message, BPEBow, small_encoder().embed_tokens, OTHER)
