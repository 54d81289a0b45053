"""Damaged vector files give vectors, or an error that names the file; they take little memory."""

import gzip
import struct
import tracemalloc

import pytest
from hostile.mutations import mutations

from polyembed.vectors import BPEmbVectors, FastTextVectors, TextVectors, Word2VecBinaryVectors

CORPUS = [["me", "gusta", "that", "song"], ["that", "song", "me", "gusta"]] * 9
ROWS = {"me": (1.5, 2.0, -3e-2), "gusta": (4.0, 5.0, 6.0), "Ñu": (7.0, 8.0, 9.0)}
TEXT = "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in ROWS.items()).encode()


def fasttext(folder):
    FastTextVectors.train(CORPUS, folder / "model.bin", dim=3, min_count=1, bucket=10)
    return folder / "model.bin", FastTextVectors


def text(folder):
    (folder / "words.vec").write_bytes(b"3 3\n" + TEXT)
    return folder / "words.vec", TextVectors


def compressed(folder):
    (folder / "words.gz").write_bytes(gzip.compress(TEXT, mtime=0))
    return folder / "words.gz", TextVectors


def binary(folder):
    rows = (f"{word} ".encode() + struct.pack("<3f", *row) for word, row in ROWS.items())
    (folder / "words.bin").write_bytes(b"3 3\n" + b"\n".join(rows))
    return folder / "words.bin", Word2VecBinaryVectors


def piece_vectors(folder):
    trained = BPEmbVectors.train(CORPUS, folder, vocab_size=25, dim=3, epochs=1)
    return trained.vectors_file, lambda path: BPEmbVectors(trained.model_file, path)


def complaint(read, path) -> str | None:
    """Read a file; return the error's message."""
    try:
        read(path).vectors(["me", "gusta", "", "Ñu 🙂"])
    except (ValueError, FileNotFoundError) as error:
        return str(error)
    return None


@pytest.mark.parametrize("write", [fasttext, text, compressed, binary, piece_vectors])
def test_a_damaged_file_gives_vectors_or_an_error_that_names_it(write, tmp_path):
    path, read = write(tmp_path)
    good, refused = path.read_bytes(), 0
    assert complaint(read, path) is None
    tracemalloc.start()
    try:
        for damaged in mutations(good, 300):
            path.write_bytes(damaged)
            message = complaint(read, path)
            assert message is None or path.name in message, damaged
            refused += message is not None
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()
    assert 0 < refused < 300
