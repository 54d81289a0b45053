"""The scores of a masked language model at the points where languages switch."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from torch import nn

from polyembed._checks import check_positive, class_name, must, require
from polyembed.training._masked_scores import Row, score_rows
from polyembed.training._masked_text import Example, ExampleEncoder, check_masked_lm

NO_LANGUAGE = frozenset({"_", "OTHER", "other", "rest", "eng&spa", "ne", "ambiguous", "unk"})
"""Tags of words that have no language: SAGT's ``CSID`` and LinCE's; `switch_points` looks through such words."""


class Spoken(Protocol):
    """A sentence with one language a word, such as `polyembed.data.TaggedSentence`."""

    @property
    def words(self) -> Sequence[str]:
        """The words, in order."""

    @property
    def languages(self) -> Sequence[str] | None:
        """One language a word."""


class MaskedScore(NamedTuple):
    """How well masked pieces were predicted.

    Attributes:
        accuracy: The share of pieces whose most probable prediction is right; NaN without any.
        loss: Their mean cross-entropy, in nats; NaN without any.
        pieces: How many pieces.
        words: How many words they belong to.
    """

    accuracy: float
    loss: float
    pieces: int
    words: int


class SwitchPoints(NamedTuple):
    """Scores at code-switch points apart from the rest.

    Attributes:
        switch: Words whose language differs from that of the last word before them that has one.
        rest: The other words with a language, the first of each sentence among them.
        no_language: Words without a language, such as punctuation.
    """

    switch: MaskedScore
    rest: MaskedScore
    no_language: MaskedScore


def switch_points(
    model: nn.Module,
    tokenizer: Any,
    sentences: Iterable[Spoken],
    *,
    folds: int | None = None,
    no_language: Collection[str] = NO_LANGUAGE,
    max_length: int = 128,
    batch_size: int = 16,
) -> SwitchPoints:
    """Score a masked language model at code-switch points apart from the rest.

    A word is a switch point if its language differs from that of the last word before it, in the
    same sentence, that has a language. Words whose tag is in `no_language` have none: a switch
    across a comma counts. A tag for words of mixed language (``MIXED``) is a language like others,
    unless it is in `no_language`.

    Every word is masked once, all its pieces together, each piece by one mask piece, so the number
    of pieces is given away. By default each word has its own pass, with the whole rest of the
    sentence visible: one row a word. With `folds` = k the words i, i + k, i + 2k, ... are masked in
    one row: k rows a sentence, faster, less in sight.

    A sentence of more than `max_length` pieces is cut between words into parts that fit; no word is
    lost, and a part's first word may be a switch point by the part before. A word without pieces is
    not counted. Words are tokenised as by `polyembed.text.align_words`, after a space where the
    tokenizer needs one.

    Deviations: 2503.07990 claims that adaptation helps at language boundaries (section "Why This
    Works (Mechanism)") and does not measure it.

    Args:
        model: A transformers model for masked language modelling; in evaluation mode for the while.
        tokenizer: Its tokenizer, a fast one, with a mask piece, that takes words
            (``is_split_into_words``).
        sentences: Objects with ``words`` and ``languages``, as `polyembed.data.read_conllu` gives
            them with ``language="misc:CSID"``.
        folds: How many rows a sentence; None = one a word.
        no_language: Tags that are not languages.
        max_length: The most pieces of a row, special ones included.
        batch_size: Rows a pass.

    Returns:
        Accuracy and mean loss over pieces at switch points, at the other words, and at words
        without a language.

    Raises:
        ValueError: A sentence without languages, a word longer than `max_length`, or no word to
            score.
        TypeError: A model without a masked-LM head, a slow tokenizer, sentences without these
            attributes, or a string instead of tags.

    Example:
        ``switch_points(model, tokenizer, read_conllu(path,
        language="misc:CSID")).switch.accuracy``; see `adapt_masked_lm` for a model and a tokenizer.
    """
    check_positive(
        max_length=max_length, batch_size=batch_size, folds=1 if folds is None else folds
    )
    if isinstance(no_language, str):  # "O" is in "OTHER"
        raise TypeError(
            must("no_language", "be a collection of tags", f"the string {no_language!r}")
        )
    check_masked_lm(model)
    encoder = ExampleEncoder(model, tokenizer, max_length=max_length, truncation=False)
    kinds = ("switch", "rest", "no_language")
    losses: dict[str, list[float]] = {kind: [] for kind in kinds}
    hits = dict.fromkeys(kinds, 0)
    words = dict.fromkeys(kinds, 0)

    def rows() -> Iterator[Row]:
        for number, sentence in enumerate(sentences):
            found = _kinds(sentence, no_language, f"sentences[{number}]")
            for first, part in encoder.words(sentence.words, f"sentences[{number}]"):
                yield from _word_rows(part, found[first:], folds)

    for row, row_losses, row_hits in score_rows(model, tokenizer, rows(), batch_size):
        for kind, loss, hit in zip(row.kinds, row_losses, row_hits, strict=True):
            losses[kind].append(loss)
            hits[kind] += hit
        for kind in row.words:
            words[kind] += 1
    require(any(words.values()), "sentences", "hold at least one word with a piece", "none")
    scores = []
    for kind in kinds:
        count = len(losses[kind])
        mean = math.fsum(losses[kind]) / count if count else math.nan
        scores.append(
            MaskedScore(hits[kind] / count if count else math.nan, mean, count, words[kind])
        )
    return SwitchPoints(*scores)


class SwitchEncoder(ExampleEncoder):
    """Turns sentences with languages into examples whose pieces at or next to a switch of language have priority."""

    def __call__(self, texts: Iterable[Any], name: str = "texts") -> Iterator[Example]:
        """Yield the examples of each sentence, the first alone with truncation."""
        for sentence in texts:
            near = _near_switches(_kinds(sentence, NO_LANGUAGE, name))
            for first, part in self.words(sentence.words, name):
                if part.size:
                    yield part._replace(
                        priority=[i is not None and first + i in near for i in part.word_ids]
                    )
                if self.truncation:
                    break


def _near_switches(kinds: Sequence[str]) -> set[int]:
    """Return the switch points, and before each the last word with a language."""
    near: set[int] = set()
    last = 0
    for i, kind in enumerate(kinds):
        if kind == "switch":
            near |= {last, i}
        if kind != "no_language":
            last = i
    return near


def _kinds(sentence: Spoken, no_language: Collection[str], name: str) -> list[str]:
    languages = getattr(sentence, "languages", None)
    if not hasattr(sentence, "words"):
        raise TypeError(must(name, "have words and languages", class_name(sentence)))
    if languages is None:
        raise ValueError(must(f"{name}.languages", "be one language a word", "none"))
    count = len(sentence.words)
    require(
        len(languages) == count,
        f"{name}.languages",
        f"be as many as the words, {count}",
        len(languages),
    )
    kinds: list[str] = []
    last: str | None = None
    for language in languages:
        if language in no_language:
            kinds.append("no_language")
            continue
        kinds.append("rest" if last is None or language == last else "switch")
        last = language
    return kinds


def _word_rows(part: Example, kinds: Sequence[str], folds: int | None) -> Iterator[Row]:
    places: dict[int, list[int]] = {}
    for i, word in enumerate(part.word_ids):
        if word is not None:
            places.setdefault(word, []).append(i)
    words = list(places)
    step = len(words) if folds is None else folds
    for fold in range(min(step, len(words))):
        chosen = words[fold::step]
        masked = [(i, kinds[word]) for word in chosen for i in places[word]]
        yield Row(
            part.ids,
            [i for i, _ in masked],
            [kind for _, kind in masked],
            [kinds[word] for word in chosen],
        )
