"""The contract of every source of pretrained word vectors."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from polyembed._checks import check_sentences, require
from polyembed.metrics import check_labels
from polyembed.tables import Table

Rows = npt.NDArray[np.float32]


@runtime_checkable
class WordVectors(Protocol):
    """A source of one vector per word: ``vectors(words)[i]`` is the vector of ``words[i]``.

    A word that the source neither knows nor can spell has a row of zeros, so every word has a row.
    """

    @property
    def dim(self) -> int:
        """The length of a vector."""
        ...

    def vectors(self, words: Sequence[str]) -> Rows:
        """Return the vectors of `words`.

        Args:
            words: The words, repetitions allowed.

        Returns:
            Float32 rows in the order of `words`, ``(len(words), dim)``.
        """
        ...


class Vocabulary(ABC):
    """A source with a vocabulary: the words that have a row of their own (``word in source``)."""

    @abstractmethod
    def __contains__(self, word: object) -> bool: ...

    def coverage(
        self,
        sentences: Iterable[Sequence[str]],
        languages: Iterable[Sequence[str]] | None = None,
    ) -> Table:
        r"""Count the types and tokens of a text that have a row, in all and by language.

        A word with only a vector from n-grams, as in fastText models, counts as unknown.

        Args:
            sentences: Lists of words.
            languages: The language tag of each word, one list per sentence. A type with several
                tags counts under each.

        Returns:
            A table with a row for all words, then a row for each tag, the tag with most tokens
            first. Shares are in percent.

        Raises:
            ValueError: If `sentences` have no word, or the numbers of sentences or tags differ.

        Example:
            >>> import tempfile
            >>> from polyembed import TextVectors
            >>> with tempfile.NamedTemporaryFile(suffix=".vec") as file:
            ...     _ = file.write(b"me 1 2\nthat 3 4\n"), file.flush()
            ...     table = TextVectors(file.name).coverage(
            ...         [["me", "gusta", "that"], ["me"]], [["es", "es", "en"], ["es"]])
            >>> print(table.to_markdown())
            | language | types | known | known % | tokens | known tokens | known tokens % |
            | -------- | ----- | ----- | ------- | ------ | ------------ | -------------- |
            | all      | 3     | 2     | 66.7    | 4      | 3            | 75.0           |
            | es       | 2     | 1     | 50.0    | 3      | 2            | 66.7           |
            | en       | 1     | 1     | 100.0   | 1      | 1            | 100.0          |
        """
        texts = check_sentences(sentences)
        tags = [] if languages is None else list(languages)
        if languages is not None:
            check_labels({"sentences": texts, "languages": tags})
        total = Counter(chain(*texts))
        groups: dict[str, Counter[str]] = {}
        for word, tag in zip(chain(*texts), chain(*tags), strict=False):
            groups.setdefault(tag, Counter())[word] += 1
        require(bool(total), "sentences", "hold at least one word", "none")
        known = {word for word in total if word in self}
        rows = []
        ordered = sorted(groups.items(), key=lambda group: (-group[1].total(), group[0]))
        for name, counts in [("all", total), *ordered]:
            found = [count for word, count in counts.items() if word in known]
            types, tokens = len(counts), counts.total()
            row = name, types, len(found), 100 * len(found) / types
            rows.append((*row, tokens, sum(found), 100 * sum(found) / tokens))
        names = "types", "known", "known %", "tokens", "known tokens", "known tokens %"
        return Table(("language", *names), rows, digits=1)
