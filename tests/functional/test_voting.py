"""Votes against loops over positions."""

import math
from collections import Counter

import pytest
import torch
from checks import refused
from torch import Tensor
from toys import own_words

from polyembed.functional import entity_vote, majority_vote, vote_entropy
from polyembed.metrics import entities

NONE = -100
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
NOTHING = torch.zeros(0, 5, dtype=torch.int64)


def elect(labels: list) -> object:
    """Return the label with the most votes at one position; the earliest voter breaks ties."""
    counts = Counter(label for label in labels if label != NONE)
    return max(counts, key=lambda label: (counts[label], -labels.index(label)), default=NONE)


@pytest.fixture
def ballots() -> Tensor:
    """Return labels with abstentions and all kinds of ties."""
    labels = torch.randint(4, (5, 11, 13))
    labels[torch.rand(labels.shape) < 0.3] = NONE
    labels[:, 0, 0] = NONE
    return labels


def columns(x: Tensor) -> list[list]:
    return x.flatten(1).T.tolist()


@pytest.mark.parametrize("num_voters", [1, 2, 5])
def test_majority_is_the_rule_at_each_position(ballots, num_voters: int):
    labels = ballots[:num_voters].int()
    found = majority_vote(labels)
    assert found.dtype == torch.int32
    assert found.flatten().tolist() == [elect(column) for column in columns(labels)]
    other = majority_vote(labels.where(labels != NONE, 7), ignore_index=7)
    assert torch.equal(other, found.where(found != NONE, 7))
    assert majority_vote(labels[:, 2, 3]) == found[2, 3]
    assert majority_vote(labels[:, :0]).shape == (0, 13)


def sentences(num_voters: int, labels: list, lengths: tuple[int, ...]) -> list[list[list]]:
    return [
        [[labels[i] for i in torch.randint(len(labels), (length,)).tolist()] for length in lengths]
        for _ in range(num_voters)
    ]


@pytest.mark.parametrize("labels", [["X", "NOUN", "VERB"], [3, 1, NONE]])
def test_lists_follow_the_same_rule(labels: list):
    predictions = sentences(4, labels, (5, 0, 3, 1, 7) * 9)
    for i, sentence in enumerate(majority_vote(predictions)):
        words = zip(*(voter[i] for voter in predictions), strict=True)
        assert sentence == [elect([*word]) for word in words]
    assert majority_vote([[], []]) == []
    assert majority_vote([[[]]]) == [[]]


def test_entities_of_a_majority_win():
    """The test counts all entities of all voters, including entities in invalid sequences."""
    predictions = sentences(5, LABELS, (11, 0, 1) * 30)
    result = entity_vote(predictions)
    kept = 0
    for i, labels in enumerate(result):
        assert len(labels) == len(predictions[0][i])
        votes = Counter(entity for voter in predictions for entity in entities(voter[i]))
        expected = {entity for entity, count in votes.items() if count >= 3}
        assert set(entities(labels)) == set(entities(labels, mode="strict")) == expected
        kept += len(expected)
    assert kept > 10


def test_whole_entities_where_words_would_make_none():
    predictions = [[["B-PER", "I-PER", "O"]], [["O", "I-PER", "I-PER"]], [["B-PER", "O", "I-PER"]]]
    # a vote by words returns an entity that no prediction contains
    assert majority_vote(predictions) == [["B-PER", "I-PER", "I-PER"]]
    assert entity_vote(predictions) == [["O", "O", "O"]]
    assert entity_vote(predictions[:1] * 2 + predictions[1:2]) == predictions[0]
    assert entity_vote([[["B", "I", "B"]], [["B", "I", "O"]]]) == [["B", "I", "O"]], "no type"
    touching = [["B-LOC", "B-LOC", "I-LOC"]]
    assert entity_vote([touching]) == touching


def test_entropy_of_the_shares(ballots):
    found = vote_entropy(ballots)
    for value, column in zip(found.flatten().tolist(), columns(ballots), strict=True):
        counts = Counter(label for label in column if label != NONE)
        shares = [count / counts.total() for count in counts.values()]
        assert value == pytest.approx(-sum(p * math.log(p) for p in shares), abs=1e-6)


TENSORS = (majority_vote, vote_entropy)
LISTS = (majority_vote, entity_vote)


@own_words
@pytest.mark.parametrize(
    ("functions", "predictions", "error", "message"),
    [
        (TENSORS, torch.ones(3, 5), TypeError, "^predictions must be int64 or int32, got torch.fl"),
        (
            TENSORS,
            NOTHING,
            ValueError,
            r"^predictions must have the axes \(voter, .*, got shape \(0",
        ),
        (TENSORS, NOTHING.sum(), ValueError, r"^predictions must have the axes \(voter, \*batch\)"),
        (LISTS, [], ValueError, "^predictions must hold at least one voter, got none$"),
        (
            LISTS,
            [["O"]],
            TypeError,
            r"^predictions\[0\]\[0\] must be the labels of a sentence, got",
        ),
        (
            LISTS,
            [[["O"], ["O"]], [["O"]]],
            ValueError,
            r"^predictions\[1\] must have as many sentences as predictions\[0\], 2, got 1$",
        ),
        (
            LISTS,
            [[["O"]], [["O", "O"]]],
            ValueError,
            r"^predictions\[1\]\[0\] must have as many labels as predictions\[0\]\[0\], 1, got 2$",
        ),
        ((entity_vote,), [[["S-PER"]]], ValueError, "^labels must be O, B-<type> or I-<type>, got"),
    ],
)
def test_bad_predictions(functions, predictions, error: type[Exception], message: str):
    for function in functions:
        refused(error, message, function, predictions)
