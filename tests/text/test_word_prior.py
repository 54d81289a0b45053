"""The prior against its formula, written out as a recursion."""

import itertools
import math

import pytest

from polyembed._pretrained import _Reader, _Writer
from polyembed.text import WordPrior

COUNTS = {"काम": 30, "कम": 10, "नाम": 2}


def letter_probability(letter: str, history: str, words: list[str], order: int) -> float:
    """``p(c | h) = (count(hc) + types(h) p(c | h')) / (count(h) + types(h))``, counted anew each time."""
    padded = ["^" * (order - 1) + word + "$" for word in words]
    alphabet = {letter for word in words for letter in word} | {"$"}
    shorter = 1 / (len(alphabet) + 1) if not history else letter_probability(letter, history[1:], words, order)
    following = [
        word[i]
        for word in padded
        for i in range(order - 1, len(word))
        if word[i - len(history) : i] == history
    ]  # fmt: skip
    if not following:
        return shorter
    types = len(set(following))
    return (following.count(letter) + types * shorter) / (len(following) + types)


def word_probability(word: str, counts: dict[str, int], order: int, unseen: float) -> float:
    padded = "^" * (order - 1) + word + "$"
    letters = math.prod(
        letter_probability(padded[i], padded[i - order + 1 : i], list(counts), order)
        for i in range(order - 1, len(padded))
    )
    return (1 - unseen) * counts.get(word, 0) / sum(counts.values()) + unseen * letters


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("word", ["काम", "कम", "नम", "मकान", "xyz", "", "क" * 7])
def test_equals_the_formula(order: int, word: str) -> None:
    expected = word_probability(word, COUNTS, order, 0.3)
    assert math.exp(WordPrior(COUNTS, order=order, unseen=0.3).log_prob(word)) == pytest.approx(expected, rel=1e-9)


def test_all_words_add_up_to_one() -> None:
    prior = WordPrior({"ab": 3, "a": 1}, order=2, unseen=0.5)
    words = ("".join(letters) for length in range(10) for letters in itertools.product("abx", repeat=length))
    total = math.fsum(math.exp(prior.log_prob(word)) for word in words)  # x: the place of letters never seen
    assert 0.99 < total < 1.0


def test_without_unseen_words() -> None:
    prior = WordPrior({"ab": 3, "a": 1}, unseen=0.0)
    assert prior.log_prob("b") == -math.inf
    assert prior.log_prob("ab") == pytest.approx(math.log(0.75))


def test_long_words_have_a_probability() -> None:
    assert -1e6 < WordPrior(COUNTS).log_prob("म" * 5000) < -1000


def test_is_rebuilt_from_its_configuration(tmp_path) -> None:
    prior = WordPrior(COUNTS, order=3, unseen=0.2)
    tree = _Writer(tmp_path, copy_vectors=False).encode(prior, "prior")
    again = _Reader(tmp_path).read(tree)
    assert again.get_config() == prior.get_config()
    assert again.log_prob("कान") == prior.log_prob("कान")
    assert repr(again) == "WordPrior(3 words, order=3, unseen=0.2)"


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"counts": {}}, ValueError, r"^counts must hold at least one word, got none$"),
        ({"counts": {"क": 0}}, ValueError, r"^counts\['क'\] must be a positive integer, got 0$"),
        ({"counts": ["क"]}, TypeError, r"^counts must be a mapping of words to counts, got list$"),
        ({"counts": {"क": 1}, "order": 0}, ValueError, r"^order must be a positive integer, got 0$"),
        ({"counts": {"क": 1}, "unseen": 1.0}, ValueError, r"^unseen must lie in \[0, 1\), got 1.0$"),
    ],
)
def test_errors(arguments: dict, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        WordPrior(**arguments)
