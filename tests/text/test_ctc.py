"""The beam search against all paths."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from polyembed.text.ctc import ctc_beam_search


def all_sequences(rows: list[list[float]]) -> dict[tuple[int, ...], float]:
    """Walk every path, collapse it, add its probability to its label sequence."""
    found: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(len(rows[0])), repeat=len(rows)):
        merged = [label for i, label in enumerate(path) if i == 0 or label != path[i - 1]]
        labels = tuple(label for label in merged if label != 0)
        probability = math.exp(math.fsum(row[label] for row, label in zip(rows, path, strict=True)))
        found[labels] = found.get(labels, 0.0) + probability
    return found


def random_rows(frames: int, symbols: int, seed: int = 0) -> list[list[float]]:
    torch.manual_seed(seed)
    return torch.randn(frames, symbols, dtype=torch.float64).mul(2).log_softmax(-1).tolist()


@pytest.mark.parametrize("seed", range(3))
def test_equals_all_paths(seed: int) -> None:
    rows = random_rows(5, 4, seed)
    expected = all_sequences(rows)
    found = dict(ctc_beam_search(rows, beam_size=1000, threshold=-math.inf))
    assert found.keys() == expected.keys()
    for labels, probability in expected.items():
        assert math.exp(found[labels]) == pytest.approx(probability, rel=1e-12)
    assert math.fsum(map(math.exp, found.values())) == pytest.approx(1.0)


def test_equals_torch() -> None:
    rows = random_rows(7, 4)
    frames = torch.tensor(rows, dtype=torch.float64)[:, None]
    for labels, score in ctc_beam_search(rows, beam_size=10_000, threshold=-math.inf)[:20]:
        sizes = torch.tensor([7]), torch.tensor([len(labels)])
        loss = F.ctc_loss(frames, torch.tensor([labels], dtype=torch.int64), *sizes, reduction="sum")
        assert score == pytest.approx(-float(loss), rel=1e-9)


def test_the_best_come_first() -> None:
    found = ctc_beam_search(random_rows(6, 4), beam_size=5)
    assert len(found) == 5
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)


def test_a_narrow_beam_keeps_the_best() -> None:
    rows = random_rows(6, 4)
    best = max(all_sequences(rows).items(), key=lambda item: item[1])[0]
    assert ctc_beam_search(rows, beam_size=20)[0][0] == best


def test_no_label_twice_without_a_blank() -> None:
    half = [math.log(0.5)] * 2
    assert {labels for labels, _ in ctc_beam_search([half, half], beam_size=9)} == {(), (1,)}
    assert {labels for labels, _ in ctc_beam_search([half] * 3, beam_size=9)} == {(), (1,), (1, 1)}


def test_unlikely_labels_are_passed_over() -> None:
    rows = [[math.log(0.989), math.log(0.01), math.log(0.001)]]
    assert {labels for labels, _ in ctc_beam_search(rows, beam_size=9, threshold=-5)} == {(), (1,)}


def test_no_frames() -> None:
    assert ctc_beam_search([], beam_size=3) == [((), 0.0)]
