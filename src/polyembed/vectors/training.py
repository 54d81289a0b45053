"""Train word vectors by the fasttext package, and sub-word pieces by SentencePiece; files are whole or absent."""

import io
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from polyembed._checks import check_positive, must, require
from polyembed.vectors._fasttext_process import TRAINING, run_fasttext
from polyembed.vectors.fasttext import FastTextVectors

WHITE_SPACE = re.compile(r"[ \n\r\t\v\f\0]")


def check_sentence(sentence: Sequence[str]) -> Sequence[str]:
    """Check that a line of text can hold a sentence: a list of words without white space."""
    if isinstance(sentence, str):
        raise TypeError(must("sentences", "be lists of words", f"the string {sentence!r}"))
    for word in sentence:
        require(
            not WHITE_SPACE.search(word), "sentences", "hold words without white space", repr(word)
        )
        try:
            word.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise ValueError(
                must("sentences", "hold words that UTF-8 can write", repr(word))
            ) from error
    return sentence


def train_fasttext(
    sentences: Iterable[Sequence[str]],
    path: Path,
    settings: Mapping[str, str | int],
    *,
    check: Callable[[Path], object],
) -> None:
    """Train a model and save it at `path`.

    Args:
        sentences: Lists of words.
        path: Where the model goes.
        settings: The package's own names and values.
        check: Called with the model before it is moved to `path`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".training-") as folder:
        corpus, trained = Path(folder, "corpus.txt"), Path(folder, "model.bin")
        counts: Counter[str] = Counter()
        with corpus.open("w", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            for sentence in map(check_sentence, sentences):
                counts.update(filter(None, sentence))
                file.write(" ".join(sentence) + "\n")
        rule = f"hold a word that occurs at least {settings['minCount']} times"
        enough = any(count >= int(settings["minCount"]) for count in counts.values())
        require(enough, "sentences", rule, f"{counts.total()} words")
        # A label begins with what no word can begin with.
        arguments = {
            **settings,
            "input": corpus.name,
            "output": trained.name,
            "verbose": 0,
            "label": "\n",
        }
        run_fasttext(TRAINING, json.dumps(arguments), folder=Path(folder))
        check(trained)
        trained.replace(path)


def train_pieces(
    corpus: Sequence[str], folder: Path, *, vocab_size: int, dim: int, **options: Any
) -> tuple[Path, Path]:
    """Train a byte-pair SentencePiece model and skip-gram vectors of its pieces.

    Args:
        corpus: Sentences, words separated by spaces, as the pieces see them.
        folder: Where the two files go.
        vocab_size: The most pieces.
        dim: The length of a vector.
        **options: ``epochs``, ``threads`` and ``seed`` of `FastTextVectors.train`.

    Returns:
        The model's file and the vectors' file.
    """
    import sentencepiece

    check_positive(vocab_size=vocab_size, dim=dim)
    corpus = [line for line in corpus if line.strip()]
    require(len(corpus) > 0, "sentences", "hold at least one word", "none")
    serialized = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus),
            model_writer=serialized,
            model_type="bpe",
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            num_threads=options["threads"],
            minloglevel=3,
        )
    except RuntimeError as error:
        rule = "leave room for the corpus's characters"
        raise ValueError(must("vocab_size", rule, f"{vocab_size} ({error})")) from error
    model = sentencepiece.SentencePieceProcessor(model_proto=serialized.getvalue())
    pieces = [model.id_to_piece(i) for i in range(len(model))]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".training-") as draft:
        options |= {"dim": dim, "min_count": 1, "min_n": 0, "max_n": 0, "bucket": 1}
        trained = FastTextVectors.train(
            model.encode(corpus, out_type=str), Path(draft, "vectors.bin"), **options
        )
        with Path(draft, "pieces.vec").open("w", encoding="utf-8") as file:
            file.write(f"{len(pieces)} {dim}\n")
            for piece, row in zip(pieces, trained.vectors(pieces), strict=True):
                file.write(f"{piece} {' '.join(f'{value:.6g}' for value in row)}\n")
        Path(draft, "pieces.model").write_bytes(serialized.getvalue())
        model_file, vectors_file = (
            Path(draft, name).replace(folder / name) for name in ("pieces.model", "pieces.vec")
        )
    return model_file, vectors_file
