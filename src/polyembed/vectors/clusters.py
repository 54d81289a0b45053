"""Brown clusters of words, as features."""

import gzip
import io
import json
import lzma
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NoReturn

from polyembed._checks import check_file, check_positive, class_name, is_count, must, require
from polyembed.saving import VectorFiles
from polyembed.vectors.protocol import check_words
from polyembed.vectors.textfile import open_compressed

MAX_PREFIX = 64  # bits; Brown's trees have about 20 levels
MAX_BYTES = (
    1 << 26
)  # of a table, uncompressed, so that a small compressed file cannot fill the memory
MAX_FEATURES = 1 << 20  # clusters times prefixes; Brown's tools make thousands of clusters


class ClusterFeatures(VectorFiles):
    r"""The Brown clusters of words (Brown et al. 1992), by prefixes of their bit strings: coarse
    and fine classes.

    Reads the ``paths`` file of Liang's tool (lines ``<bits>\t<word>\t<count>``) and spaCy's lookup
    tables (``<language>_lexeme_cluster.json.gz`` of the package ``spacy-lookups-data``), compressed
    or not. A word that the table lacks has the cluster of its lower form, else the unknown one. The
    table is kept in memory, about 280 bytes a word.

    It spells words for a `SpelledEmbedding`, each by one id for each prefix:
    ``SpelledEmbedding(PieceSpelling(clusters), FeatureEncoder(clusters.num_pieces + 1,
    len(prefixes)), lexicon)``.

    Args:
        path: The file.
        prefixes: The lengths of the prefixes, in bits; a shorter bit string counts whole.

    Raises:
        FileNotFoundError: No file at `path`.
        ValueError: A line that is not of this format (its number is named), a damaged file, no word
            at all, more than 64 MiB uncompressed, or more than 2^20 clusters times prefixes.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> path = Path(tempfile.mkdtemp()) / "paths"
        >>> _ = path.write_text("0010\tgusta\t7\n0011\tencanta\t3\n11\tsong\t9\n")
        >>> clusters = ClusterFeatures(path, prefixes=(2, 4))
        >>> clusters.piece_ids(["gusta", "Encanta", "song", "xyz"])
        [[1, 3], [1, 4], [2, 5], [0]]
    """

    file_arguments: ClassVar[frozenset[str]] = frozenset({"path"})
    unknown_id: ClassVar[int] = 0

    def __init__(
        self, path: str | os.PathLike[str], *, prefixes: Sequence[int] = (4, 6, 10, 20)
    ) -> None:
        self.path = check_file(path)
        if not isinstance(prefixes, Sequence):
            raise TypeError(must("prefixes", "be a sequence of lengths", repr(prefixes)))
        check_positive(**{f"prefixes[{i}]": length for i, length in enumerate(prefixes)})
        lengths = tuple(prefixes)
        require(
            max(lengths, default=0) <= MAX_PREFIX,
            "prefixes",
            f"have at most {MAX_PREFIX} bits",
            list(prefixes),
        )
        require(
            0 < len(set(lengths)) == len(lengths),
            "prefixes",
            "be different lengths, at least one",
            list(prefixes),
        )
        self.prefixes = lengths
        bits = self._read()
        require(bool(bits), "path", "name a file with at least one word", self.path)
        strings = sorted(set(bits.values()))
        if len(strings) * len(lengths) > MAX_FEATURES:
            self._fail(
                f"{len(strings)} clusters; {MAX_FEATURES // len(lengths)} at most with {len(lengths)} prefixes"
            )
        keys = sorted({(length, string[:length]) for string in strings for length in lengths})
        ids = {key: i for i, key in enumerate(keys, start=1)}
        self.num_pieces = len(keys) + 1
        rows = {string: [ids[length, string[:length]] for length in lengths] for string in strings}
        self._rows = {word: rows[string] for word, string in bits.items()}

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and (word in self._rows or word.lower() in self._rows)

    def piece_ids(self, words: Sequence[str]) -> list[list[int]]:
        """Return each word's ids from 1 on, one for each prefix; ``[unknown_id]`` for a word without a cluster."""
        check_words(words)
        for i, word in enumerate(words):
            if not isinstance(word, str):
                raise TypeError(must(f"words[{i}]", "be a string", class_name(word)))
        unknown = [self.unknown_id]
        return [
            list(self._rows.get(word) or self._rows.get(word.lower(), unknown)) for word in words
        ]

    def _read(self) -> dict[str, str]:
        """Return each word's bit string."""
        try:
            with open_compressed(self.path) as file:
                text = file.read(MAX_BYTES + 1)
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            self._fail(f"damaged: {error}")
        if len(text) > MAX_BYTES:
            self._fail(f"more than {MAX_BYTES} bytes, uncompressed")
        return self._read_json(text) if text.startswith(b"{") else dict(self._read_lines(text))

    def _read_json(self, text: bytes) -> dict[str, str]:
        """Read spaCy's table: a cluster's bits are a binary number, the lowest bit first."""
        try:
            table: dict[str, Any] = json.loads(text)
        except (ValueError, RecursionError) as error:
            self._fail(f"no JSON: {error}")
        width = max(self.prefixes)
        wrong = next(
            (word for word, value in table.items() if not (is_count(value) and value >= 0)), None
        )
        if wrong is not None:
            self._fail(f"{table[wrong]!r} is the cluster of {wrong!r}")
        return {
            word: format(value & ((1 << width) - 1), f"0{width}b")[::-1]
            for word, value in table.items()
        }

    def _read_lines(self, text: bytes) -> Iterator[tuple[str, str]]:
        for number, line in enumerate(io.BytesIO(text), 1):
            try:
                found = re.fullmatch(r"([01]+)\t([^\t]+)(\t\d+)?", line.decode().rstrip("\r\n"))
            except UnicodeDecodeError:
                found = None
            if found is None:
                rule = "hold bits, a word and a count, with tabs between them"
                raise ValueError(must(f"{self.path}, line {number},", rule, repr(line[:80])))
            yield found[2], found[1]

    def _fail(self, what: str) -> NoReturn:
        raise ValueError(must("path", "name a whole table of clusters", f"{self.path} ({what})"))
