"""Brown clusters: both formats, prefixes, words without a cluster, saving, broken files."""

import gzip
import json

import pytest
import torch

import polyembed as pe
from polyembed.embeddings import FeatureEncoder
from polyembed.text import PieceSpelling
from polyembed.vectors import ClusterFeatures

BITS = {"gusta": "0010", "encanta": "0011", "song": "11", "ÑU": "1010"}


def write(path, form: str):
    if form == "paths":
        path.write_text(
            "".join(f"{bits}\t{word}\t{i}\n" for i, (word, bits) in enumerate(BITS.items())),
            "utf-8",
        )
    else:  # as spaCy makes it
        text = json.dumps({word: int(bits[::-1], 2) for word, bits in BITS.items()})
        path.write_bytes(gzip.compress(text.encode()))
    return path


@pytest.mark.parametrize("form", ["paths", "spacy"])
def test_words_with_equal_prefixes_share_ids(tmp_path, form: str) -> None:
    clusters = ClusterFeatures(write(tmp_path / "file", form), prefixes=(2, 3, 4))
    gusta, encanta, song, upper = clusters.piece_ids(["gusta", "Encanta", "SONG", "ÑU"])
    assert [a == b for a, b in zip(gusta, encanta, strict=True)] == [True, True, False]
    assert not set(song) & {*gusta, *upper}
    assert clusters.piece_ids(["nada", "ñu", ""]) == [[0]] * 3
    assert "Song" in clusters
    assert "nada" not in clusters
    ids = {i for row in (gusta, encanta, song, upper) for i in row}
    assert ids == set(range(1, clusters.num_pieces))


def test_beside_other_embedders_saved_and_extended(tmp_path) -> None:
    clusters = ClusterFeatures(write(tmp_path / "file", "paths"), prefixes=(2, 4))
    lexicon = pe.Lexicon(["gusta", "nada"])
    words = pe.SpelledEmbedding(
        PieceSpelling(clusters), FeatureEncoder(clusters.num_pieces + 1, 2, 5), lexicon
    )
    words.save_pretrained(tmp_path / "saved")
    (tmp_path / "file").unlink()
    opened = pe.SpelledEmbedding.from_pretrained(tmp_path / "saved").with_words(["encanta"])
    expected = words.eval().with_words(["encanta"])
    torch.testing.assert_close(opened(torch.tensor([2, 3, 4])), expected(torch.tensor([2, 3, 4])))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"0010\tgusta\t7\n0012\tsong\t3\n", r"file, line 2, must hold bits, a word and a count"),
        (b"0010 gusta 7\n", r"file, line 1, must hold bits, a word and a count"),
        (b"0010\t\xff\t7\n", r"file, line 1, must hold bits, a word and a count"),
        (b"", r"^path must name a file with at least one word"),
        (b"{}", r"^path must name a file with at least one word"),
        (
            b'{"gusta": -1}',
            r"^path must name a whole table of clusters, got .*file \(-1 is the cluster of 'gusta'\)",
        ),
        (b'{"gusta": [1]}', r"^path must name a whole table of clusters"),
        (b'{"gusta": 1', r"^path must name a whole table of clusters, got .*no JSON"),
        (
            gzip.compress(b"0010\tgusta\t7\n" * 99, mtime=0)[:-9],
            r"^path must name a whole table of clusters, got .*damaged",
        ),
    ],
)
def test_broken_files(tmp_path, data: bytes, message: str) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(ValueError, match=message):
        ClusterFeatures(tmp_path / "file")


@pytest.mark.parametrize("form", ["paths", "spacy"])
def test_a_table_is_small_uncompressed(
    tmp_path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "file", form)
    text = gzip.decompress(path.read_bytes()) if form == "spacy" else path.read_bytes()
    path.write_bytes(gzip.compress(text))
    monkeypatch.setattr("polyembed.vectors.clusters.MAX_BYTES", len(text))
    assert "song" in ClusterFeatures(path)
    monkeypatch.setattr("polyembed.vectors.clusters.MAX_BYTES", len(text) - 1)
    with pytest.raises(ValueError, match=r"\(more than \d+ bytes, uncompressed\)$"):
        ClusterFeatures(path)


def test_a_table_has_thousands_of_clusters(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "file", "paths")
    monkeypatch.setattr("polyembed.vectors.clusters.MAX_FEATURES", 8)
    assert "song" in ClusterFeatures(path, prefixes=(2, 4))
    with pytest.raises(ValueError, match=r"\(4 clusters; 2 at most with 3 prefixes\)$"):
        ClusterFeatures(path, prefixes=(2, 3, 4))


def test_a_long_line_is_one_line(tmp_path) -> None:
    """Lines were once read in parts of 16 MiB, the second of which could be a line of its own."""
    (tmp_path / "file").write_bytes(b"01\t" + b"a" * (2**24 - 3) + b"1\tsong\t3\n")
    with pytest.raises(ValueError, match=r"file, line 1, must hold bits, a word and a count"):
        ClusterFeatures(tmp_path / "file")


def test_words_that_are_no_strings(tmp_path) -> None:
    clusters = ClusterFeatures(write(tmp_path / "file", "paths"))
    with pytest.raises(TypeError, match=r"^words\[1\] must be a string, got NoneType$"):
        clusters.piece_ids(["me", None])


def test_bad_prefixes(tmp_path) -> None:
    path = write(tmp_path / "file", "paths")
    with pytest.raises(TypeError, match=r"^prefixes must be a sequence of lengths, got 5$"):
        ClusterFeatures(path, prefixes=5)
    with pytest.raises(ValueError, match=r"^prefixes\[1\] must be a positive integer, got 0$"):
        ClusterFeatures(path, prefixes=(4, 0))
    with pytest.raises(
        ValueError, match=r"^prefixes must have at most 64 bits, got \[4, 1000000000000\]$"
    ):
        ClusterFeatures(path, prefixes=[4, 10**12])
    with pytest.raises(
        ValueError, match=r"^prefixes must be different lengths, at least one, got \[4, 4\]$"
    ):
        ClusterFeatures(path, prefixes=[4, 4])
