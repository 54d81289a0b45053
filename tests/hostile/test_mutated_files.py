"""Every reader on a hundred damaged files.

A reader must return a value or raise an error that names the file, in bounded time and memory.
"""

import gzip
import resource
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

import pytest
import torch
from hostile.mutations import mutations
from laser_files import write_checkpoint
from saving.folders import build_tagger, only, reseal
from tiny_models import tiny_model, word_piece_tokenizer
from toys import toy_bpe_tokenizer

import polyembed as pe
from polyembed.data import (
    read_conll,
    read_conllu,
    read_csv,
    read_dictionary,
    read_inline,
    read_lince,
    read_pawsx,
    read_sentimix,
    read_wikiann,
    read_xnli,
)
from polyembed.encoders import LaserEncoder, cache_features
from polyembed.encoders.cached import FeatureStore
from polyembed.saving import PretrainedModule
from polyembed.text.laser import open_sentencepiece
from polyembed.training import load_checkpoint, save_checkpoint
from polyembed.vectors import (
    BPEmbVectors,
    FastTextVectors,
    TextVectors,
    Word2VecBinaryVectors,
    WordVectors,
    read_merges,
)

COUNT = 100  # damaged files of each kind
MEMORY = 1 << 30  # bytes beyond the memory of the process
SECONDS = 3  # per file
DOCUMENTED = (ValueError, TypeError, OSError)
WORDS = ["me", "gusta", "that", "song", "", "Ñu 🙂"]
SENTENCES = [["me", "gusta", "that", "song"], ["that", "song", "me", "gusta"]] * 9

Read = Callable[[Path], object]
KINDS: dict[str, Callable[[Path], tuple[Path, Read]]] = {}
"""Functions by kind, each of which writes a good file into a folder and returns path and reader."""


def kind(write: Callable[[Path], tuple[Path, Read]]) -> Callable[[Path], tuple[Path, Read]]:
    KINDS[write.__name__.replace("_", " ")] = write
    return write


class TooLong(BaseException):
    """Raised if a reader takes longer than allowed."""


def stop(number: int, frame: FrameType | None) -> None:
    raise TooLong


@contextmanager
def bounded() -> Iterator[None]:
    """Limit the memory of this process, and stop readers at the alarm.

    An allocation beyond the limit raises an error that is not allowed for readers.
    """
    limits = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, stop)
    try:
        if Path("/proc/self/statm").exists():
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            size = pages * resource.getpagesize() + MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (size, limits[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGALRM, handler)


def read_all(path: Path, read: Read, count: int, *, name: str, seed: int = 0) -> int:
    """Check a reader on damaged copies of a file.

    Return the number of copies that are read without an error.
    """
    good, opened = path.read_bytes(), 0
    read(path)
    with bounded(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for mutated in mutations(good, count, seed):
            path.write_bytes(mutated)
            signal.setitimer(signal.ITIMER_REAL, 20 * SECONDS)
            started = time.process_time()
            error: Exception | None = None
            try:
                read(path)
            except Exception as raised:  # any error, which is checked below
                error = raised
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert time.process_time() - started < SECONDS, mutated
            if error is None:
                opened += 1
            elif (
                not isinstance(error, DOCUMENTED)
                or isinstance(error, UnicodeError)
                or name not in str(error)
            ):
                raise AssertionError(f"{type(error).__name__} ({error}) for {mutated!r}") from error
    path.write_bytes(good)
    return opened


def bpemb_files(folder: Path) -> tuple[Path, Path]:
    trained = BPEmbVectors.train(SENTENCES, folder, vocab_size=25, dim=3, epochs=1)
    return trained.model_file, trained.vectors_file


@kind
def sentencepiece_model(folder: Path) -> tuple[Path, Read]:
    model, _ = bpemb_files(folder)
    return model, lambda path: open_sentencepiece(path).encode("me gusta")


@kind
def piece_vectors(folder: Path) -> tuple[Path, Read]:
    model, vectors = bpemb_files(folder)
    return vectors, lambda path: BPEmbVectors(model, path)


@kind
def fasttext_model(folder: Path) -> tuple[Path, Read]:
    options = {"dim": 3, "min_count": 1, "bucket": 10}
    model = FastTextVectors.train(SENTENCES, folder / "model.bin", **options)
    return model.path, lambda path: FastTextVectors(path).vectors(WORDS)


def vector_file(name: str, content: bytes, read: Callable[[Path], WordVectors]) -> None:
    """Register a reader of word vectors."""

    def write(folder):
        (folder / name).write_bytes(content)
        return folder / name, lambda path: read(path).vectors(WORDS)

    KINDS[name] = write


ROWS = b"me 1.5 2\ngusta 4 -5e-2\n\xc3\x91u 7 8\n"
PACKED = b"".join(word + b" " + b"\x01\x20\x0a\x3f" * 2 + b"\n" for word in (b"me", b"gusta"))
vector_file("text.vec", b"3 2\n" + ROWS, TextVectors)
vector_file("text.vec.gz", gzip.compress(ROWS, mtime=0), TextVectors)
vector_file("word2vec.bin", b"2 2\n" + PACKED, Word2VecBinaryVectors)


@kind
def laser_checkpoint(folder: Path) -> tuple[Path, Read]:
    return write_checkpoint(folder / "laser.pt"), LaserEncoder.from_checkpoint


@kind
def laser_merges(folder: Path) -> tuple[Path, Read]:
    path = folder / "93langs.fcodes"
    path.write_text("".join(f"{a} {b} 7\n" for a, b in toy_bpe_tokenizer().merges))
    return path, read_merges


@kind
def lexicon(folder: Path) -> tuple[Path, Read]:
    pe.Lexicon(WORDS, normalization="NFC").extended(["new"]).save(folder / "lexicon.json")
    return folder / "lexicon.json", pe.Lexicon.load


@kind
def training_checkpoint(folder: Path) -> tuple[Path, Read]:
    state = {"epoch": 1, "model": {"weight": torch.arange(6.0)}, "name": "song"}
    save_checkpoint(folder / "run.pt", state, seed=0)
    return folder / "run.pt", lambda path: load_checkpoint(path, seed=0)


def reader(name: str, content: str, read: Read) -> None:
    """Register a reader of text."""

    def write(folder):
        (folder / "corpus.txt").write_text(content)
        return folder / "corpus.txt", read

    KINDS[name] = write


UD = "1-2\tdel\t_\t_\t_\t_\t_\t_\t_\t_\n" + "".join(
    f"{i}\t{word}\t_\tX\t_\tCase=Nom\t0\troot\t_\tCSID=es\n"
    for i, word in enumerate(("de", "el", "niño"), 1)
)
reader(
    "conll",
    "# id = 1\nSao B-LOC es\nPaulo I-LOC pt\n\n-DOCSTART- O x\n\n#a O es\n",
    partial(read_conll, comment="#"),
)
reader(
    "conllu",
    f"# sent_id = a\n{UD}\n{UD}",
    partial(read_conllu, tag="feats:Case", language="misc:CSID"),
)
reader("csv", 'Sent,Word,Tag\ns0,"tha,",Other\ns0,Irán,B-Loc\n""\ns1,"a""b",Other\n', read_csv)
reader("inline", "Yo///lang2 know///lang1\n:)///other ñ///x\n", read_inline)
reader(
    "lince",
    "# sent_enum = 1\nLouis\tne\tB-ORG\n#ñ\tother\tO\n\n",
    partial(read_lince, task="ner_spaeng"),
)
reader("wikiann", "en:to\tO\nen:India\tB-LOC\n\nen:é\tO\n", read_wikiann)
reader("sentimix", "meta\t7\tpositive\nbadhai\tHin\nñ\tEng\n\n", read_sentimix)
XNLI_HEAD = "language\tgold_label\tsentence1\tsentence2\tpairID\n"
reader(
    "xnli",
    XNLI_HEAD + "es\tneutral\tSí .\tNo .\t1\nde\tentailment\tJa\tÖl\t1\n",
    partial(read_xnli, language="es"),
)
reader("pawsx", 'id\tsentence1\tsentence2\tlabel\n1\tSí "a\tñ .\t1\n2\t\tNS\t0\n', read_pawsx)
reader("dictionary", "perro dog\nniño\tsmall child\n", read_dictionary)


def read_folder(path: Path) -> object:
    """Open a saved folder with one changed file, after an update of the file's digest."""
    if path.name != "config.json":
        reseal(path.parent)
    return PretrainedModule.from_pretrained(path.parent)


@pytest.mark.parametrize("pattern", ["config.json", "model-*", "lexicon-*"])
def test_a_saved_tagger(pattern: str, tmp_path: Path):
    build_tagger().save_pretrained(tmp_path)
    opened = read_all(only(tmp_path, pattern), read_folder, 100, name=str(tmp_path), seed=1)
    assert opened < 75


@pytest.mark.parametrize("file", ["index.json", "features.npy"])
def test_a_feature_store(file: str, tmp_path: Path):
    encoder = pe.PretrainedWordEncoder(tiny_model("bert"), word_piece_tokenizer())
    folder = cache_features(encoder, SENTENCES, tmp_path / "store", layers=[0, 1]).folder
    read_all(
        folder / file,
        lambda path: FeatureStore(path.parent).get(SENTENCES[0]),
        COUNT,
        name=str(tmp_path),
    )


@pytest.mark.parametrize("name", KINDS)
def test_mutated_files(name: str, tmp_path: Path):
    path, read = KINDS[name](tmp_path)
    assert read_all(path, read, COUNT, name=str(path)) < COUNT
