"""LASER's public files: fetched once and read, and other formats refused."""

import pytest
import torch
from checks import refused
from laser_files import parts
from network import Server
from toys import toy_bpe_tokenizer

import polyembed as pe
from polyembed.encoders import LaserEncoder, LaserSentences, load_laser
from polyembed.text import PieceDictionary, SentencePieceTokenizer
from polyembed.text.laser import open_sentencepiece
from polyembed.vectors import fetch_laser, read_merges, read_pieces

LASER1 = "https://dl.fbaipublicfiles.com/laser/models/"
LASER2 = "https://dl.fbaipublicfiles.com/nllb/laser/"


def laser1(tmp_path) -> dict[str, bytes]:
    tokenizer = toy_bpe_tokenizer()
    torch.save(parts(), tmp_path / "source.pt")
    merges = "".join(f"{a} {b} {100 - i}\n" for i, (a, b) in enumerate(tokenizer.merges))
    vocabulary = "".join(f"{piece} 7\n" for piece in tokenizer.dictionary.pieces()[4:])
    return {
        LASER1 + "bilstm.93langs.2018-12-26.pt": (tmp_path / "source.pt").read_bytes(),
        LASER1 + "93langs.fcodes": merges.encode(),
        LASER1 + "93langs.fvocab": vocabulary.encode(),
    }


def test_files_are_fetched_once_and_work(tmp_path, monkeypatch):
    server = Server(monkeypatch, laser1(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))  # the package keeps its cache there
    encoder, tokenizer = load_laser("laser1")
    assert server.asked == list(server.answers)
    assert tokenizer.dictionary is encoder.dictionary
    expected = toy_bpe_tokenizer().pieces([["gusta", "song"]])
    assert torch.equal(tokenizer.pieces([["gusta", "song"]]).piece_ids, expected.piece_ids)
    assert pe.encoders.LaserTop(encoder, tokenizer)(expected).shape == (1, 2, 3)
    fetch_laser("laser1", cache_dir=tmp_path / ".cache" / "laser_encoders")
    assert len(server.asked) == 3


def test_laser_2_has_a_sentencepiece_model(tmp_path, monkeypatch, data_folder):
    model = data_folder / "subwords/sentencepiece_wiki8k/eswiki.8k.2023-11-17.model"
    processor = open_sentencepiece(model)
    others = SentencePieceTokenizer(processor).dictionary.pieces()[4:]
    # the order of the model does not matter
    dictionary = PieceDictionary.from_pieces(reversed(others))
    tokenizer = SentencePieceTokenizer(processor, dictionary)
    encoder = LaserEncoder(len(dictionary), 3, 2, num_layers=1)
    sizes = {"num_embeddings": len(dictionary), "embed_dim": 3, "hidden_size": 2}
    data = {
        "params": {**sizes, "num_layers": 1, "padding_idx": 1, "bidirectional": True},
        "model": encoder.state_dict(),
        "dictionary": {piece: i for i, piece in enumerate(dictionary.pieces())},
    }
    torch.save(data, tmp_path / "source.pt")
    vocabulary = "".join(f"{piece} 1\n" for piece in dictionary.pieces()[4:])
    answers = {
        LASER2 + "laser2.pt": (tmp_path / "source.pt").read_bytes(),
        LASER2 + "laser2.spm": model.read_bytes(),
        LASER2 + "laser2.cvocab": vocabulary.encode(),
    }
    Server(monkeypatch, answers)
    sentences = LaserSentences(*load_laser(cache_dir=tmp_path / "cache", language="es"))
    assert sentences.tokenizer.language == "es"
    assert sentences.tokenizer.dictionary is sentences.encoder.dictionary
    expected = encoder(tokenizer.text_pieces(["Me gusta."]).piece_ids).detach()
    torch.testing.assert_close(sentences.encode(["Me gusta."]), expected)


def test_out_of_reach_says_what_to_fetch(tmp_path, monkeypatch):
    Server(monkeypatch, {})
    rule = rf"laser2\.pt must be there or within reach, got .*no network.*\. Fetch {LASER2}"
    refused(FileNotFoundError, rule, fetch_laser, cache_dir=tmp_path / "cache")
    refused(ValueError, r"^version must be one of 'laser1', 'laser2', got", fetch_laser, "laser3")


def test_merges_are_read(tmp_path):
    path = tmp_path / "codes"
    path.write_bytes("e n</w> 100\n\x85 \u2028 3\na b 0".encode())  # these do not end a line
    assert read_merges(path) == [("e", "n</w>"), ("\x85", "\u2028"), ("a", "b")]


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (
            read_merges,
            b"#version: 0.2\ne n</w>\n",
            "x, line 1, must hold 2 piece.s. and a count, as",
        ),
        (read_merges, b"\xff\xfe", "x must be text in UTF-8"),
        (
            read_pieces,
            b"a 1\nb\n",
            "x, line 2, must hold 1 piece.s. and a count, as fastBPE writes them, got 'b'",
        ),
    ],
)
def test_files_in_another_format_are_refused(tmp_path, read, content: bytes, message: str):
    (tmp_path / "x").write_bytes(content)
    refused(ValueError, message, read, tmp_path / "x")
