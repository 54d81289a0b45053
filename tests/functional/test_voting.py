"""Votes against loops over positions."""

import math
from collections import Counter
from itertools import product

import pytest
import torch
from checks import refused
from torch import Tensor
from toys import own_words

from polyembed.functional import agreement, entity_vote, majority_vote, vote_entropy
from polyembed.metrics import entities

NONE = -100
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def elect(labels: list, scores: list[float] | None = None, ignore: object = NONE) -> object:
    """One position, as the rule is worded: most votes, then the largest sum of scores, then the earliest voter."""
    voters = [voter for voter, label in enumerate(labels) if label != ignore]

    def merit(label: object) -> tuple[float, float, int]:
        own = [voter for voter in voters if labels[voter] == label]
        return len(own), 0.0 if scores is None else sum(scores[voter] for voter in own), -min(own)

    return max({labels[voter] for voter in voters}, key=merit) if voters else ignore


def ballots(num_voters: int = 5) -> tuple[Tensor, Tensor]:
    """Labels with abstentions and ties of every kind; scores whose sums are exact."""
    labels = torch.randint(4, (num_voters, 11, 13))
    labels[torch.rand(labels.shape) < 0.3] = NONE
    labels[:, 0, 0] = NONE
    return labels, torch.randint(3, labels.shape) / 4


def columns(x: Tensor) -> list[list]:
    return x.flatten(1).T.tolist()


@pytest.mark.parametrize("num_voters", [1, 2, 5])
@pytest.mark.parametrize("scored", [False, True])
def test_majority_is_the_rule_at_each_position(num_voters: int, scored: bool) -> None:
    labels, scores = ballots(num_voters)
    spoilt = torch.where(labels == NONE, torch.nan, scores)
    before = labels.clone(), spoilt.clone()
    found = majority_vote(labels, scores=spoilt if scored else None)
    expected = [
        elect(column, weights if scored else None)
        for column, weights in zip(columns(labels), columns(scores), strict=True)
    ]
    assert found.flatten().tolist() == expected
    torch.testing.assert_close((labels, spoilt), before, equal_nan=True)


def test_batch_axes_of_any_number_and_size() -> None:
    labels, scores = ballots()
    assert (
        majority_vote(labels[:, 2, 3], scores=scores[:, 2, 3])
        == majority_vote(labels, scores=scores)[2, 3]
    )
    for shape in ((5, 0), (5, 0, 3), (5, 3, 0)):
        assert (
            majority_vote(torch.zeros(shape, dtype=torch.int64), scores=torch.zeros(shape)).shape
            == shape[1:]
        )
    assert majority_vote(labels.int()).dtype == torch.int32
    other = torch.where(labels == NONE, 7, labels)
    assert torch.equal(
        majority_vote(other, ignore_index=7), majority_vote(labels).where(labels.ne(NONE).any(0), 7)
    )


def test_a_score_that_is_no_number_loses() -> None:
    labels = torch.tensor([[3], [1], [2]])
    assert majority_vote(labels, scores=torch.tensor([[torch.nan], [-5.0], [-9.0]])).item() == 1
    assert majority_vote(labels, scores=torch.full((3, 1), torch.nan)).item() == 3


def test_narrow_scores_are_added_in_wide_numbers() -> None:
    labels = torch.tensor([0, 1, 0, 1, 0, 1])[:, None]
    scores = torch.tensor([512.0, 512.0, 0.125, 0.25, 0.125, 0.25], dtype=torch.bfloat16)[:, None]
    assert majority_vote(labels, scores=scores).item() == 1


def sentences(
    num_voters: int, labels: list[str], lengths: tuple[int, ...] = (5, 0, 3, 1, 7)
) -> list[list[list[str]]]:
    return [
        [[labels[i] for i in torch.randint(len(labels), (length,)).tolist()] for length in lengths]
        for _ in range(num_voters)
    ]


@pytest.mark.parametrize("scored", [False, True])
def test_lists_of_labels_follow_the_same_rule(scored: bool) -> None:
    predictions = sentences(4, ["X", "NOUN", "VERB"], (5, 0, 3, 1, 7) * 9)
    scores = [
        [torch.randint(3, (len(words),)).div(4).tolist() for words in voter]
        for voter in predictions
    ]
    found = majority_vote(predictions, scores=scores if scored else None)
    for i, sentence in enumerate(found):
        columns = zip(*(voter[i] for voter in predictions), strict=True)
        weights = zip(*(voter[i] for voter in scores), strict=True)
        expected = [
            elect([*c], [*w] if scored else None) for c, w in zip(columns, weights, strict=True)
        ]
        assert sentence == expected


def test_lists_of_ids_abstain_too() -> None:
    assert majority_vote([[[NONE, 3, NONE]], [[1, 2, NONE]], [[NONE, 2, NONE]]]) == [[1, 2, NONE]]
    assert majority_vote([[[0, 1]], [[2, 0]], [[2, 0]]], ignore_index=2) == [[0, 0]]
    assert majority_vote([[], []]) == []
    assert majority_vote([[[]]]) == [[]]


def test_entities_of_a_majority_win() -> None:
    """All entities of all voters, counted one by one; labels as they come, invalid sequences among them."""
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


def test_whole_entities_where_words_would_make_none() -> None:
    predictions = [[["B-PER", "I-PER", "O"]], [["O", "I-PER", "I-PER"]], [["B-PER", "O", "I-PER"]]]
    assert majority_vote(predictions) == [
        ["B-PER", "I-PER", "I-PER"]
    ]  # an entity that nobody found
    assert entity_vote(predictions) == [["O", "O", "O"]]
    assert entity_vote(predictions[:1] * 2 + predictions[1:2]) == [["B-PER", "I-PER", "O"]]
    assert entity_vote([[["B", "I", "B"]], [["B", "I", "O"]]]) == [
        ["B", "I", "O"]
    ]  # without a type
    assert entity_vote([[["B-LOC", "B-LOC", "I-LOC"]]]) == [
        ["B-LOC", "B-LOC", "I-LOC"]
    ]  # two that touch


def test_every_pair_of_short_sequences_gives_valid_labels() -> None:
    every = [list(labels) for labels in product(LABELS, repeat=2)]
    for one in every:
        for labels in entity_vote([[one] * len(every), every, every[::-1]]):
            assert entities(labels) == entities(labels, mode="strict")


def test_entropy_of_the_shares() -> None:
    labels, _ = ballots()
    found = vote_entropy(labels)
    assert found.shape == labels.shape[1:]
    for value, column in zip(found.flatten().tolist(), columns(labels), strict=True):
        counts = Counter(label for label in column if label != NONE)
        shares = [count / counts.total() for count in counts.values()]
        assert value == pytest.approx(-sum(p * math.log(p) for p in shares), abs=1e-6)
    assert vote_entropy(torch.arange(7)).item() == pytest.approx(math.log(7))
    assert vote_entropy(torch.full((7, 2), 3)).tolist() == [0.0, 0.0]
    assert vote_entropy(torch.full((7, 2), NONE)).tolist() == [0.0, 0.0]


def test_agreement_of_each_two() -> None:
    labels, _ = ballots()
    found = agreement(labels)
    for v, w in product(range(5), repeat=2):
        pairs = zip(labels[v].flatten().tolist(), labels[w].flatten().tolist(), strict=True)
        both = [one == other for one, other in pairs if NONE not in (one, other)]
        assert found[v, w].item() == pytest.approx(sum(both) / len(both))
    assert agreement(torch.tensor([[1, NONE], [NONE, 2]])).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert agreement(torch.zeros(2, 0, dtype=torch.int64)).tolist() == [[0.0, 0.0], [0.0, 0.0]]


@own_words
@pytest.mark.parametrize("function", [majority_vote, vote_entropy, agreement])
def test_wrong_tensors(function) -> None:
    refused(
        TypeError,
        r"^predictions must be int64 or int32, got torch.float32$",
        function,
        torch.zeros(3, 5),
    )
    with pytest.raises(
        ValueError, match=r"^predictions must hold at least one voter, got shape \(0, 5\)$"
    ):
        function(torch.zeros(0, 5, dtype=torch.int64))
    with pytest.raises(
        ValueError, match=r"^predictions must have the axes \(voter, \*batch\), got shape \(\)$"
    ):
        function(torch.zeros((), dtype=torch.int64))


@own_words
def test_wrong_scores() -> None:
    labels = torch.zeros(3, 5, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"^scores must have shape \(3, 5\), got \(3, 4\)$"):
        majority_vote(labels, scores=torch.zeros(3, 4))
    with pytest.raises(
        TypeError, match=r"^scores must be a floating point tensor, got torch.int64$"
    ):
        majority_vote(labels, scores=labels)
    refused(
        TypeError,
        r"^scores must be a floating point tensor, got list$",
        majority_vote,
        labels,
        scores=[[[0.5]]],
    )
    with pytest.raises(
        TypeError, match=r"^scores must be nested lists like predictions, got a tensor$"
    ):
        majority_vote([[["A"]]], scores=torch.zeros(1, 1))
    with pytest.raises(ValueError, match=r"^scores must have the 2 voters of predictions, got 1$"):
        majority_vote([[["A"]], [["A"]]], scores=[[[0.5]]])
    with pytest.raises(
        ValueError,
        match=r"^scores\[1\]\[0\] must have the 1 words of predictions\[0\]\[0\], got 2$",
    ):
        majority_vote([[["A"]], [["A"]]], scores=[[[0.5]], [[0.5, 0.5]]])


@own_words
@pytest.mark.parametrize("function", [majority_vote, entity_vote])
def test_wrong_lists(function) -> None:
    refused(ValueError, r"^predictions must hold at least one voter, got none$", function, [])
    with pytest.raises(
        ValueError, match=r"^predictions\[1\] must have the 2 sentences of predictions\[0\], got 1$"
    ):
        function([[["O"], ["O"]], [["O"]]])
    rule = r"^predictions\[2\]\[1\] must have the 1 words of predictions\[0\]\[1\], got 2$"
    refused(ValueError, rule, function, [[["O"], ["O"]], [["O"], ["O"]], [["O"], ["O", "O"]]])
    rule = r"^predictions\[0\]\[0\] must be the labels of a sentence, got the string 'O'$"
    refused(TypeError, rule, function, [["O"]])


@own_words
def test_wrong_labels() -> None:
    refused(
        TypeError,
        r"^predictions must hold labels \(str or int\), got a list \['O'\]$",
        majority_vote,
        [[[["O"]]]],
    )
    refused(
        ValueError,
        r"^labels must be O, B-<type> or I-<type>, got 'S-PER'",
        entity_vote,
        [[["S-PER"]]],
    )
