"""What prepares the words of a sentence before a tagger looks them up."""

from collections.abc import Callable, Iterator, Sequence
from types import MethodType
from typing import Any

from torch import nn

from polyembed._checks import class_name, must, require
from polyembed.saving import Configurable
from polyembed.text.normalize import Normalizer
from polyembed.text.pieces import check_words
from polyembed.text.transliterate import Transliterator

Step = Normalizer | Transliterator | Callable[[list[str]], Sequence[str]]
Prepare = Step | Sequence[Step] | None


def check_prepare(prepare: Prepare) -> Prepare:
    """Return the steps with the methods of `Normalizer` and transliterators as these objects, which can be saved."""
    if prepare is None:
        return None
    if isinstance(prepare, list | tuple):
        return [_check_step(f"prepare[{i}]", step) for i, step in enumerate(prepare)]
    return _check_step("prepare", prepare)


def modules_of(prepare: Any) -> Iterator[nn.Module]:
    """List the modules that the steps consist of, a transliterator's fallback among them."""
    if isinstance(prepare, nn.Module):
        yield prepare
    elif isinstance(prepare, list | tuple):
        for step in prepare:
            yield from modules_of(step)
    elif isinstance(prepare, Configurable):
        yield from modules_of(list(prepare.get_config().values()))


def prepare_words(
    prepare: Prepare, texts: Sequence[Sequence[str]], start: int = 0
) -> list[list[str]]:
    """Run the steps on each sentence; errors count sentences from `start`."""
    sentences = check_words(texts, name="sentences", start=start)
    for step in prepare if isinstance(prepare, list) else [prepare]:
        if isinstance(step, Transliterator):
            step = _transliterate_types(step, sentences)
        sentences = [_run(step, words, start + i) for i, words in enumerate(sentences)]
    return sentences


def _transliterate_types(
    transliterator: Transliterator, sentences: list[list[str]]
) -> Callable[[list[str]], Any]:
    """Transliterate each different word of all sentences in one call, and return a look-up of sentences."""
    types = list(dict.fromkeys(word for words in sentences for word in words))
    found = _run(transliterator.transliterate, types, 0, "sentences") if types else []
    known = dict(zip(types, found, strict=True))
    return lambda words: [known[word] for word in words]


def _check_step(name: str, step: Any) -> Step:
    if isinstance(step, MethodType) and step.__name__ in ("words", "transliterate"):
        step = step.__self__ if isinstance(step.__self__, Normalizer | Transliterator) else step
    known = isinstance(step, Normalizer | Transliterator) or callable(step)
    if not known or isinstance(step, type):
        rule = "be a Normalizer, a transliterator, a function of a sentence's words, a list of these, or None"
        found = f"the class {step.__name__}" if isinstance(step, type) else class_name(step)
        raise TypeError(must(name, rule, found))
    return step  # type: ignore[no-any-return]


def _run(step: Any, words: list[str], place: int, of: str | None = None) -> list[str]:
    if isinstance(step, Normalizer):
        return step.words(words)
    found, of = step(list(words)), of or f"sentences[{place}]"
    if (
        isinstance(found, str)
        or not isinstance(found, Sequence)
        or not all(isinstance(word, str) for word in found)
    ):
        raise TypeError(must("prepare", f"return a list of words for {of}, {words}", repr(found)))
    rule = f"keep the {len(words)} words of {of}, {words}"
    require(len(found) == len(words), "prepare", rule, f"{len(found)}: {list(found)}")
    return list(found)
