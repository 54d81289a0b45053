"""The grammar of tagging schemes, and a CRF that obeys it in training and in decoding."""

import itertools
from collections.abc import Callable

import pytest
import torch
from checks import refused

import polyembed as pe
from polyembed.metrics import entities

BIO = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
BIOES = ["O", "B-X", "I-X", "E-X", "S-X", "S-Y"]


def is_bio(path: list[str]) -> bool:
    pairs = itertools.pairwise(["O", *path])
    return all(not tag.startswith("I-") or last[1:] == tag[1:] for last, tag in pairs)


def is_bioes(path: list[str]) -> bool:
    found = entities(path, mode="strict", scheme="bioes")
    return sum(x.end - x.start for x in found) == sum(tag != "O" for tag in path)


@pytest.mark.parametrize(
    ("constraints", "tags", "holds"),
    [(pe.Constraints.bio(BIO), BIO, is_bio), (pe.Constraints.bioes(BIOES), BIOES, is_bioes)],
    ids=["bio", "bioes"],
)
def test_all_paths_of_four(constraints: pe.Constraints, tags: list[str], holds: Callable):
    """The rules allow the paths of the scheme, and a CRF's probability is on these paths alone."""
    paths = torch.tensor(list(itertools.product(range(len(tags)), repeat=4)))
    allowed = torch.tensor([holds([tags[tag] for tag in path]) for path in paths.tolist()])
    assert 0 < allowed.sum() < len(paths)
    broken = [constraints.first_violation(path) for path in paths.tolist()]
    assert [place is None for place in broken] == allowed.tolist()
    crf = pe.CRF(len(tags), constraints=constraints).double()
    emissions = torch.randn(1, 4, len(tags), dtype=torch.float64).expand(len(paths), -1, -1)
    log_probs = crf.log_prob(emissions, paths)
    assert log_probs[~allowed].eq(-torch.inf).all()
    torch.testing.assert_close(log_probs[allowed].exp().sum().item(), 1.0)
    decoded = crf.decode(1e4 * torch.randn(97, 11, len(tags)).double(), torch.rand(97, 11) < 0.8)
    drawn = crf.sample(1e4 * emissions, 3).flatten(0, 1).tolist()
    assert all(constraints.first_violation(path) is None for path in decoded + drawn)
    best = crf.n_best(emissions[:1], int(allowed.sum()) + 1)
    assert best.log_probs[0, -1].item() == -torch.inf
    assert set(map(tuple, best.tags[0, :-1].tolist())) == set(map(tuple, paths[allowed].tolist()))


def test_a_sentence_without_a_path_is_named():
    crf = pe.CRF(3, constraints=pe.Constraints.bio(["O", "B-X", "I-X"]))
    emissions = torch.zeros(2, 3, 3)
    emissions[1, 0, :2] = -torch.inf  # only I-X is left, which cannot begin a sentence
    rule = r"^emissions of row 1 contain NaN or forbid every path$"
    refused(ValueError, rule, crf.decode, emissions)
    assert crf.decode_tensor(emissions).ge(0).all(1).tolist() == [True, False]


def test_saved_with_the_decoder(tmp_path):
    decoder = pe.CRFDecoder(7, len(BIOES), constraints=pe.Constraints.bioes(BIOES)).eval()
    decoder.save_pretrained(tmp_path)
    features = 100 * torch.randn(5, 6, 7)
    loaded = pe.CRFDecoder.from_pretrained(tmp_path)
    assert torch.equal(loaded.decode(features), decoder.decode(features))


def test_custom_constraints():
    """The first rules let tags alternate, and the second rules end with the first tag."""
    constraints = pe.Constraints([[0, 1], [1, 0]])
    crf = pe.CRF(2, constraints=constraints)
    assert crf.decode(torch.tensor([[[0.0, 9.0], [0.0, 9.0], [0.0, 1.0]]])) == [[1, 0, 1]]
    assert constraints.first_violation([1, 0, 0]) == 2
    assert pe.Constraints([[1, 1], [1, 1]], end=[True, False]).first_violation([0, 1]) == 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pe.Constraints.bio(["O", "E-X"]), "^labels must be O, B-<type> or I-<type>, got"),
        (lambda: pe.Constraints.bioes(["B-X", "E-X"]), "every length, got no sequence of 1 word$"),
        (lambda: pe.Constraints([[1]], [1, 1]), r"have 1 entries in each row, .*, got \[1, 2\]$"),
        (lambda: pe.Constraints([]), "^transitions must have a row per tag, at least one, got no"),
        (
            lambda: pe.Constraints.bio(BIO).first_violation([1, 5]),
            r"^tags\[1\] must be an id in \[0, 5\) or -100, got 5$",
        ),
    ],
)
def test_wrong_constraints(call: Callable, message: str):
    refused(ValueError, message, call)
