"""Votes of several taggers on the same words.

Voters are compared pair by pair: with ``n`` voters a position costs ``n * n`` comparisons, whatever
the number of labels.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, overload

import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyembed._checks import check_ids, require
from polyembed.metrics import Scheme, bio_labels, check_labels, entities

Label = TypeVar("Label", str, int)


@overload
def majority_vote(
    predictions: Int[Tensor, "voter *batch"], *, ignore_index: int = -100
) -> Int[Tensor, "*batch"]: ...
@overload
def majority_vote(
    predictions: Sequence[Sequence[Sequence[Label]]], *, ignore_index: int = -100
) -> list[list[Label]]: ...
def majority_vote(
    predictions: Int[Tensor, "voter *batch"] | Sequence[Sequence[Sequence[Label]]],
    *,
    ignore_index: int = -100,
) -> Int[Tensor, "*batch"] | list[list[Label]]:
    """Return the most frequent label of each position: ``argmax_label |{v : y_v = label}|``.

    If labels have equally many votes, the label of the earliest voter wins.

    Args:
        predictions: The label ids, one row per voter; or labels as
            ``predictions[voter][sentence][word]``, with the same lengths of sentences from every
            voter.
        ignore_index: The label of a voter that abstains. It is also the result where all voters
            abstain.

    Returns:
        The labels, ``(*batch)``, or one list of labels per sentence.

    Raises:
        ValueError: If voters are missing, or differ in the number or the lengths of their
            sentences.
        TypeError: If predictions are not labels.

    Example:
        >>> majority_vote(torch.tensor([[3, 1, -100], [4, 2, -100], [4, 1, -100]]))
        tensor([   4,    1, -100])
        >>> majority_vote([[["A", "B"], ["C"]], [["A", "C"], ["B"]], [["B", "C"], ["B"]]])
        [['A', 'C'], ['B']]
    """
    if isinstance(predictions, Tensor):
        _check(predictions)
        votes = _agreeing(predictions, ignore_index).sum(1)
        # where all voters abstain, the first one is taken
        earliest = (votes == votes.amax(0)).int().argmax(0, keepdim=True)
        return predictions.gather(0, earliest).squeeze(0)
    _check_lists(predictions)

    def elected(labels: Iterable[Any]) -> Any:
        votes = Counter(label for label in labels if label != ignore_index)
        return max(votes, key=votes.__getitem__, default=ignore_index)  # the earliest of equals

    sentences: Any = zip(*predictions, strict=True)
    return [[elected(labels) for labels in zip(*rows, strict=True)] for rows in sentences]


def entity_vote(
    predictions: Sequence[Sequence[Sequence[str]]], *, scheme: Scheme = "bio"
) -> list[list[str]]:
    """Return the labels of the entities that more than half of the voters found, with the same type
    and the same ends.

    Any two such entities have a voter in common, and one voter's entities do not overlap. So the
    winners do not overlap either, and the result is always a valid BIO (IOB2) sequence. Voters'
    labels are read as conlleval reads them (an ``I-x`` that follows no x begins an entity). With
    two voters, both must agree.

    Args:
        predictions: The labels as ``predictions[voter][sentence][word]``.
        scheme: The scheme of the labels, and of the result: ``"bio"``, ``"bioes"`` or ``"bilou"``.

    Returns:
        One list of labels for each sentence.

    Raises:
        ValueError: If voters are missing, or differ in the number or the lengths of their
            sentences; or if a label is not of the scheme.
        TypeError: If labels are not one sequence for each sentence.

    Example:
        >>> one = [["B-PER", "I-PER", "O", "B-LOC"]]
        >>> two = [["B-PER", "O", "O", "B-LOC"]]
        >>> three = [["B-PER", "I-PER", "O", "O"]]
        >>> entity_vote([one, two, three])
        [['B-PER', 'I-PER', 'O', 'B-LOC']]
    """
    _check_lists(predictions)
    elected = []
    for sentence in zip(*predictions, strict=True):
        votes = Counter(entity for labels in sentence for entity in entities(labels, scheme=scheme))
        winners = [entity for entity, count in votes.items() if 2 * count > len(predictions)]
        elected.append(bio_labels(winners, len(sentence[0]), scheme))
    return elected


def vote_entropy(
    predictions: Int[Tensor, "voter *batch"], *, ignore_index: int = -100
) -> Float[Tensor, "*batch"]:
    """Compute the entropy of the votes at each position: ``H = -sum_label p log p`` with ``p`` the
    label's share.

    Args:
        predictions: The label ids, one row per voter.
        ignore_index: The label of a voter that abstains.

    Returns:
        The entropy in nats, ``(*batch)``: 0 where all voters agree or all abstain, at most the log
        of the number of voters.

    Example:
        >>> vote_entropy(torch.tensor([[3, 1], [3, 2]]))
        tensor([0.0000, 0.6931])
    """
    _check(predictions)
    votes = _agreeing(predictions, ignore_index).sum(1)
    count = votes.gt(0).sum(0)
    # -log p of each voter's own label
    surprise = count.clamp(min=1).log() - votes.clamp(min=1).log()
    return torch.where(votes > 0, surprise, 0.0).sum(0) / count.clamp(min=1)


def _check(predictions: Tensor) -> None:
    """Check for integer labels of at least one voter."""
    check_ids("predictions", predictions)
    rule = "have the axes (voter, *batch), one voter or more"
    got = tuple(predictions.shape)
    require(sum(got[:1]) > 0, "predictions", rule, f"shape {got}")


def _agreeing(predictions: Tensor, ignore_index: int) -> Tensor:
    """Return where two voters agree and do not abstain, ``(voter, voter, *batch)``."""
    return (predictions[:, None] == predictions) & predictions.ne(ignore_index)


def _check_lists(predictions: Sequence[Sequence[Sequence[Any]]]) -> None:
    """Require at least one voter, and from each as many sentences and words as from the first."""
    require(len(predictions) > 0, "predictions", "hold at least one voter", "none")
    check_labels({f"predictions[{i}]": sentences for i, sentences in enumerate(predictions)})
