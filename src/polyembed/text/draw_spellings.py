"""Text in another script as many people would write it: a spelling drawn for each word."""

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence

from polyembed._checks import must, require
from polyembed.text.character_transliterator import Candidate


def draw_spellings(
    sentences: Iterable[Sequence[str]],
    spellings: Mapping[str, Sequence[Candidate]],
    *,
    seed: int = 0,
) -> Iterator[list[str]]:
    """Write each word in one of its spellings, drawn anew at each place: y with ``p(y | x)``.

    People romanise a word in many ways (*nahi*, *nahin*, *nhi*). Vectors trained on a text that has
    them all, each as often as people write it, place them side by side.

    Args:
        sentences: Lists of words; read once.
        spellings: A word -> its spellings with the logarithms of their weights: what
            `CharacterTransliterator.candidates` returns, or attested spellings with ``log(count)``.
            The weights of a word need not add up to one. A word that is not listed is kept.
        seed: The seed of the draws.

    Yields:
        The sentences, of the same lengths, one after the other.

    Raises:
        ValueError: A word without a spelling, or a score that is not a finite number.
        TypeError: A string instead of a sentence, or spellings that are not `Candidate` pairs.

    Example:
        >>> spellings = {"नहीं": [Candidate("nahi", math.log(0.7)), Candidate("nhi", math.log(0.3))]}
        >>> list(draw_spellings([["नहीं", "!"], ["नहीं"], ["नहीं"]], spellings, seed=2))
        [['nhi', '!'], ['nhi'], ['nahi']]
    """
    draw = random.Random(seed)
    weighted = {word: _weigh(word, found) for word, found in spellings.items()}
    for row, sentence in enumerate(sentences):
        if isinstance(sentence, str):
            raise TypeError(
                must(f"sentences[{row}]", "be a list of words", f"the string {sentence!r}")
            )
        yield [draw.choices(*weighted[word])[0] if word in weighted else word for word in sentence]


def _weigh(word: str, found: Sequence[Candidate]) -> tuple[list[str], list[float]]:
    name = f"spellings[{word!r}]"
    if isinstance(found, str) or not all(isinstance(one, tuple) and len(one) == 2 for one in found):
        raise TypeError(must(name, "be a list of Candidates", repr(found)))
    require(len(found) > 0, name, "hold at least one spelling", "none")
    strange = [score for _, score in found if not math.isfinite(score)]
    require(not strange, name, "have finite scores", strange)
    best = max(score for _, score in found)
    return [spelling for spelling, _ in found], [math.exp(score - best) for _, score in found]
