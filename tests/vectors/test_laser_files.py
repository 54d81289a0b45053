"""LASER's public files: fetched once, held to their checksums, read; other formats refused."""

import hashlib
from pathlib import Path

import pytest
import torch
from laser_files import parts
from network import Server
from toys import toy_bpe_tokenizer

import polyembed as pe
from polyembed.encoders import LaserEncoder, LaserSentences, load_laser
from polyembed.text import PieceDictionary, SentencePieceTokenizer
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


def test_files_are_fetched_once_and_work(tmp_path, monkeypatch) -> None:
    server = Server(monkeypatch, laser1(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))  # where the package keeps its cache
    encoder, tokenizer = load_laser("laser1")
    assert server.asked == list(server.answers)
    assert tokenizer.dictionary is encoder.dictionary
    expected = toy_bpe_tokenizer().pieces([["gusta", "song"]])
    assert torch.equal(tokenizer.pieces([["gusta", "song"]]).piece_ids, expected.piece_ids)
    assert pe.LaserTop(encoder, tokenizer)(expected).shape == (1, 2, 3)
    cache = tmp_path / ".cache" / "laser_encoders"
    files = fetch_laser("laser1", cache_dir=cache)
    assert len(server.asked) == 3
    assert files == tuple(
        cache / name
        for name in ("bilstm.93langs.2018-12-26.pt", "93langs.fcodes", "93langs.fvocab")
    )
    for path in cache.glob("*.sha256"):  # as if they were put there by hand
        path.unlink()
    assert fetch_laser("laser1") == files
    assert len(server.asked) == 3


def test_the_vocabulary_file_says_what_may_come_out(tmp_path, monkeypatch) -> None:
    answers = laser1(tmp_path)
    answers[LASER1 + "93langs.fvocab"] = answers[LASER1 + "93langs.fvocab"].replace(
        b"song 7\n", b""
    )
    Server(monkeypatch, answers)
    tokenizer = load_laser("laser1", cache_dir=tmp_path / "cache").tokenizer
    names = tokenizer.dictionary.pieces()
    assert "song" in names
    assert tokenizer.vocabulary == sorted(set(names[4:]) - {"song"})
    assert tokenizer.cut_word("song") != tokenizer.dictionary.ids(["song"])


def test_laser_2_has_a_sentencepiece_model(tmp_path, monkeypatch, data_folder) -> None:
    model = data_folder / "subwords/sentencepiece_wiki8k/eswiki.8k.2023-11-17.model"
    processor = pe.text.open_sentencepiece(model)
    others = SentencePieceTokenizer(processor).dictionary.pieces()[4:]
    dictionary = PieceDictionary.from_pieces(
        reversed(others)
    )  # the model's order counts for nothing
    tokenizer = SentencePieceTokenizer(processor, dictionary)
    encoder = LaserEncoder(len(dictionary), 3, 2, num_layers=1)
    params = {
        "num_embeddings": len(dictionary),
        "embed_dim": 3,
        "hidden_size": 2,
        "num_layers": 1,
        "padding_idx": 1,
    }
    ids = {piece: i for i, piece in enumerate(dictionary.pieces())}
    data = {
        "params": {**params, "bidirectional": True},
        "model": encoder.state_dict(),
        "dictionary": ids,
    }
    torch.save(data, tmp_path / "source.pt")
    answers = {
        LASER2 + "laser2.pt": (tmp_path / "source.pt").read_bytes(),
        LASER2 + "laser2.spm": model.read_bytes(),
        LASER2 + "laser2.cvocab": "".join(
            f"{piece} 1\n" for piece in dictionary.pieces()[4:]
        ).encode(),
    }
    Server(monkeypatch, answers)
    sentences = LaserSentences(*load_laser(cache_dir=tmp_path / "cache", language="es"))
    assert sentences.tokenizer.language == "es"
    assert sentences.tokenizer.dictionary is sentences.encoder.dictionary
    expected = encoder(tokenizer.text_pieces(["Me gusta."]).piece_ids).detach()
    torch.testing.assert_close(sentences.encode(["Me gusta."]), expected)


def test_out_of_reach_says_what_to_fetch(tmp_path, monkeypatch) -> None:
    Server(monkeypatch, {})
    urls = ", ".join(LASER2 + name for name in ("laser2.pt", "laser2.spm", "laser2.cvocab"))
    text = rf"laser2\.pt must be there or within reach, got .*no network.*\. Fetch {urls} by other means, and put them"
    with pytest.raises(FileNotFoundError, match=text):
        fetch_laser("laser2", cache_dir=tmp_path / "cache")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_checksum_holds_a_download(tmp_path, monkeypatch) -> None:
    answers = laser1(tmp_path)
    Server(monkeypatch, answers)
    cache = tmp_path / "cache"
    text = r"^93langs\.fcodes must have the SHA-256 0+ \(remove the file to fetch it anew\), got [0-9a-f]{64}$"
    with pytest.raises(ValueError, match=text):
        fetch_laser("laser1", cache_dir=cache, sha256={"93langs.fcodes": "0" * 64})
    assert not (cache / "93langs.fcodes").exists()
    right = hashlib.sha256(answers[LASER1 + "93langs.fcodes"]).hexdigest().upper()
    files = fetch_laser("laser1", cache_dir=cache, sha256={"93langs.fcodes": right})
    with pytest.raises(ValueError, match=text):
        fetch_laser("laser1", cache_dir=cache, sha256={"93langs.fcodes": "0" * 64})
    files.vocabulary.write_text("a 1\n")
    text = r"^93langs\.fvocab must have the SHA-256 .* \(remove the file and 93langs\.fvocab\.sha256 to fetch it anew\)"
    with pytest.raises(ValueError, match=text):
        fetch_laser("laser1", cache_dir=cache)
    with pytest.raises(
        ValueError, match=r"^sha256 must name files of laser1 \(.*\), got \['laser2.pt'\]$"
    ):
        fetch_laser("laser1", cache_dir=cache, sha256={"laser2.pt": right})
    with pytest.raises(
        ValueError, match=r"^version must be one of 'laser1', 'laser2', got 'laser3'$"
    ):
        fetch_laser("laser3", cache_dir=cache)


def test_a_sum_is_whole_before_its_file_is_there(tmp_path, monkeypatch) -> None:
    """Else a process beside this one, or one after this one was killed, would read half a sum."""
    Server(monkeypatch, laser1(tmp_path))
    cache, seen = tmp_path / "cache", []
    replace = Path.replace

    def watched(self, target):
        seen.append(Path(target).name)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    fetch_laser("laser1", cache_dir=cache)
    names = ["bilstm.93langs.2018-12-26.pt", "93langs.fcodes", "93langs.fvocab"]
    assert seen == [name + end for name in names for end in (".sha256", "")]
    assert sorted(path.name for path in cache.iterdir()) == sorted(seen)
    for name in names:
        expected = hashlib.sha256((cache / name).read_bytes()).hexdigest()
        assert (cache / f"{name}.sha256").read_text().strip() == expected


def test_merges_are_read(tmp_path) -> None:
    path = tmp_path / "codes"
    path.write_bytes("e n</w> 100\n\x85 \u2028 3\na b 0".encode())  # odd characters end no line
    assert read_merges(path) == [("e", "n</w>"), ("\x85", "\u2028"), ("a", "b")]


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (
            read_merges,
            b"#version: 0.2\ne n</w>\n",
            "x, line 1, must be two pieces and a count, as fastBPE writes them",
        ),
        (
            read_merges,
            b"e n</w>\n",
            "x, line 1, must be two pieces and a count, as fastBPE writes them, got 'e n",
        ),
        (read_merges, b"e n</w> many\n", "x, line 1, must be two pieces and a count"),
        (read_merges, b"e n </w> 3\n", "x, line 1, must be two pieces and a count"),
        (read_merges, b"e  3\n", "x, line 1, must be two pieces and a count"),
        (read_merges, b"e n 3\n\na b 2\n", "x, line 2, must be two pieces and a count"),
        (read_merges, b"\xff\xfe", "x must be text in UTF-8"),
        (read_merges, b"", "x must hold merges, got none"),
        (read_pieces, b"", "x must hold pieces, got none"),
        (read_pieces, b"a 1\nb\n", "x, line 2, must be a piece and a count, got 'b'"),
    ],
)
def test_files_in_another_format_are_refused(tmp_path, read, content: bytes, message: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "x")
    with pytest.raises(FileNotFoundError, match=r"nothing at"):
        read(tmp_path / "absent")
