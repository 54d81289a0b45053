"""How likely a word is before anything is known of it: counts of known words, letters of unknown ones."""

import math
from collections.abc import Mapping
from typing import Any

from polyembed._checks import check_positive, check_probability, class_name, must, require
from polyembed._pretrained import Configurable

_START, _END = "\x02", "\x03"


class WordPrior(Configurable):
    """A probability for every string: known words by their counts, others by their letters.

    ``p(w) = (1 - u) count(w) / N + u prod_i p(w_i | w_{i-n+1} ... w_{i-1})``, with a share u for words never seen and a
    model of letters that is interpolated after Witten and Bell (1991):
    ``p(c | h) = (count(hc) + types(h) p(c | h')) / (count(h) + types(h))``, where h' is h without its first letter and
    types(h) says how many different letters follow h. It counts each known word once, with its end; below the shortest
    history all letters, the end, and one for letters never seen are equally likely.

    Args:
        counts: Word -> how often a text has it.
        order: n, the letters of the longest sequence that is counted.
        unseen: u, the share of words that the text does not have.

    Raises:
        ValueError: No words, a count below 1, or a share outside [0, 1).

    Example:
        >>> prior = WordPrior({"काम": 30, "कम": 10})
        >>> prior.log_prob("काम") > prior.log_prob("कम") > prior.log_prob("कमा") > prior.log_prob("ककक")
        True

    Deviations: none from the smoothing of Witten and Bell; the mixture with word counts is this library's.
    """

    def __init__(self, counts: Mapping[str, int], *, order: int = 5, unseen: float = 0.1) -> None:
        if not isinstance(counts, Mapping):
            raise TypeError(must("counts", "be a mapping of words to counts", class_name(counts)))
        check_positive(order=order)
        check_probability(unseen=unseen)
        require(len(counts) > 0, "counts", "hold at least one word", "none")
        for word, count in counts.items():
            check_positive(**{f"counts[{word!r}]": count})
        self.counts = dict(counts)
        self.order = order
        self.unseen = unseen
        self._total = sum(self.counts.values())
        self._following: dict[str, dict[str, int]] = {}
        for word in self.counts:
            padded = _START * (order - 1) + word + _END
            for end in range(order - 1, len(padded)):
                for length in range(order):
                    following = self._following.setdefault(padded[end - length : end], {})
                    following[padded[end]] = following.get(padded[end], 0) + 1
        self._sums = {history: sum(following.values()) for history, following in self._following.items()}
        self._uniform = 1 / (len(self._following[""]) + 1)

    def log_prob(self, word: str) -> float:
        """Give the log-probability of a word.

        Args:
            word: Any string.

        Returns:
            ``log p(word)`` in nats.
        """
        padded = _START * (self.order - 1) + word + _END
        letters = (self._letter(padded[i], padded[i - self.order + 1 : i]) for i in range(self.order - 1, len(padded)))
        unknown = _log(self.unseen) + math.fsum(map(math.log, letters))  # a long word's product is no float
        known = _log((1 - self.unseen) * self.counts.get(word, 0) / self._total)
        high, low = max(known, unknown), min(known, unknown)
        return high if low == -math.inf else high + math.log1p(math.exp(low - high))

    def _letter(self, letter: str, history: str) -> float:
        probability = self._uniform
        for length in range(len(history) + 1):
            following = self._following.get(history[len(history) - length :])
            if following is None:
                break
            count = self._sums[history[len(history) - length :]]
            probability = (following.get(letter, 0) + len(following) * probability) / (count + len(following))
        return probability

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"counts": self.counts, "order": self.order, "unseen": self.unseen}

    def __repr__(self) -> str:
        return f"WordPrior({len(self.counts)} words, order={self.order}, unseen={self.unseen})"


def _log(value: float) -> float:
    return math.log(value) if value > 0.0 else -math.inf
