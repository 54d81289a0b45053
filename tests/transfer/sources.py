"""Word vectors in a dict, for the tests of two spaces."""

import numpy as np


class Source:
    """The vectors of known words, and zeros for other words."""

    def __init__(self, rows: dict[str, list[float]]) -> None:
        self.rows, self.words, self.dim = rows, list(rows), len(next(iter(rows.values())))

    def vectors(self, words: list[str]) -> np.ndarray:
        rows = [self.rows.get(word, [0.0] * self.dim) for word in words]
        return np.array(rows, np.float32).reshape(-1, self.dim)
