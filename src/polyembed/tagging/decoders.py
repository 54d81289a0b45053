"""Decoders: features to labels.

A decoder owns the encoding and the names of its labels. ``encode_labels(labels)`` makes a tensor
from names, ``loss(features, labels, mask)`` is a mean in nats, ``decode(features, mask)`` gives the
best labels, and ``labels_of(decoded)`` returns the names of one sentence's labels. A module with
these methods, ``in_features`` and ``tags`` fits into a `SequenceTagger`; it may be a multi-label
decoder.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from polyembed._checks import (
    check_dim,
    check_last_dim,
    check_mask,
    check_positive,
    check_probability,
    check_shape,
    check_tensor,
    must,
    require,
    require_type,
)
from polyembed.crf import CRF, Constraints
from polyembed.data.lines import MISSING_TAG
from polyembed.functional.losses import IGNORE_INDEX, cross_entropy
from polyembed.functional.masking import select_valid, widened
from polyembed.saving import PretrainedModule
from polyembed.tagging.losses import check_criterion
from polyembed.text.spelling import pad_rows

Features = Float[Tensor, "batch word dim"]
Emissions = Float[Tensor, "batch word tag"]
TagIds = Int[Tensor, "batch word"]
Allowed = Bool[Tensor, "batch word tag"]
Mask = Bool[Tensor, "batch word"] | None


class Decoder(PretrainedModule):
    """A linear map from features to emissions, and a rule that chooses a tag for each word.

    Args:
        in_features: The size of a word's features.
        tags: The names of the tags in the order of their ids, or their number; a `SequenceTagger`
            gives its names to a decoder that was built with a number.
        extra_emissions: Whether the last features, one per tag, are scores (`WideAndDeepEncoder`).
            They are added to the scores that the linear map gives for the other features.
    """

    tags: tuple[str, ...] | int
    dropout = 0.0
    constraints: Constraints | None = None
    """The sequences of tags that the decoder can return; None = all."""

    def __init__(
        self, in_features: int, tags: Sequence[str] | int, *, extra_emissions: bool = False
    ) -> None:
        super().__init__()
        self.tags = int(tags) if isinstance(tags, int | np.integer) else tuple(tags)
        count = self.num_tags
        check_positive(in_features=in_features, num_tags=count)
        mapped = in_features - count if extra_emissions else in_features
        require(mapped >= 0, "in_features", f"hold {count} extra emissions", in_features)
        self.in_features, self.extra_emissions = in_features, extra_emissions
        self.linear = nn.Linear(mapped, count) if mapped else None

    @property
    def num_tags(self) -> int:
        """The number of tags."""
        return len(self._names)

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(map(str, range(self.tags))) if isinstance(self.tags, int) else self.tags

    def encode_labels(self, labels: Sequence[Sequence[Any]]) -> TagIds | Allowed:
        """Turn tag names into ids, padded with -100.

        Args:
            labels: A list of tag names per sentence. A missing tag becomes -100: None, or a
                `MISSING_TAG` outside the tag set. A set of several names (``{"B-PER", "B-ORG"}``)
                says that one of them is right.

        Returns:
            The ids, ``(batch, word)`` int64; if there is such a set, the tags that each word may
            have, ``(batch, word, tag)`` bool.

        Raises:
            ValueError: If a name is outside the tag set, a set is empty, or the constraints forbid
                a sequence.
        """
        ids: dict[Any, int] = {None: IGNORE_INDEX, MISSING_TAG: IGNORE_INDEX}
        ids |= {name: i for i, name in enumerate(self._names)}
        rule = f"be one of {', '.join(self._names)}"
        rows: list[list[set[int]]] = []
        for number, row in enumerate(labels):
            rows.append([])
            for place, name in enumerate(row):
                where, options = f"tags[{number}][{place}]", options_of(name)
                require(bool(options), where, "be a set of names", "an empty one")
                for one in options:
                    require(one in ids, where, rule, repr(one))
                rows[-1].append({ids[one] for one in options})
            allowed = self.constraints
            broken = None if allowed is None else allowed.first_violation(rows[-1])
            if broken is not None:
                rule = "be a sequence that the decoder's constraints allow"
                near = " ".join(map(str, row[max(0, broken - 1) : broken + 1]))
                raise ValueError(must(f"tags[{number}]", rule, f"{near} at {broken}"))
        if all(len(given) == 1 for row in rows for given in row):
            return pad_rows([[min(given) for given in row] for row in rows], IGNORE_INDEX)
        sets = torch.ones(len(rows), max(map(len, rows)), self.num_tags, dtype=torch.bool)
        known = [
            (number, place, tag)
            for number, row in enumerate(rows)
            for place, given in enumerate(row)
            if IGNORE_INDEX not in given
            for tag in given
        ]
        row, word, tag = torch.tensor(known, dtype=torch.int64).reshape(-1, 3).T
        sets[row, word] = False
        sets[row, word, tag] = True
        return sets

    def labels_of(self, decoded: Int[Tensor, " word"]) -> list[str]:
        """Return the names of one sentence's tags.

        Args:
            decoded: The ids of the sentence's words, a part of what `decode` returns.

        Returns:
            A name per word.

        Raises:
            ValueError: If a word has no tag, because its scores are NaN or all paths are forbidden.
        """
        ids = decoded.tolist()
        rule = "be numbers that allow a tag for each word"
        require(IGNORE_INDEX not in ids, "the scores", rule, "NaN, or all tags forbidden")
        return list(map(self._names.__getitem__, ids))

    def emissions(self, features: Features, mask: Mask = None) -> Emissions:
        """Score each tag at each word: ``(batch, word, tag)``."""
        check_dim("features", features, 3, "batch, word, dim")
        weight = None if self.linear is None else self.linear.weight
        check_last_dim("features", features, self.in_features, weight)
        check_mask(mask, features.shape[:2])
        features = F.dropout(select_valid(features, mask), self.dropout, self.training)
        if self.linear is None:
            return features
        mapped = self.linear.in_features
        emissions: Tensor = self.linear(features[..., :mapped])
        return emissions + features[..., mapped:] if self.extra_emissions else emissions

    @abstractmethod
    def loss(
        self, features: Features, tags: TagIds | Allowed, mask: Mask = None
    ) -> Float[Tensor, ""]:
        """Compute the mean loss of the tags in nats; 0 if no tag is known.

        Args:
            features: The words' features.
            tags: The tags, as `encode_labels` makes them: tag ids, with -100 where a tag is not
                known, or sets of tags. They may be anything where the mask is off.
            mask: True = a word; None = all are.

        Returns:
            The loss, a scalar.

        Raises:
            ValueError: If, on a CPU, a tag is outside the tag set where the mask is on.
        """

    @abstractmethod
    def decode(self, features: Features, mask: Mask = None) -> TagIds:
        """Return the ids of the best tags; -100 at masked positions and where scores are NaN."""

    @abstractmethod
    def probabilities(self, features: Features, mask: Mask = None) -> Emissions:
        """Compute the probability of each tag at each word; zeros at masked positions."""

    def forward(self, features: Features, mask: Mask = None) -> Emissions:
        """Score each tag at each word: `emissions`."""
        return self.emissions(features, mask)


def options_of(label: Any) -> Any:
    """Return the labels of which one is right: the set itself, or a list of the single label."""
    require_type(not isinstance(label, list), "tags", "be names or sets of names", label)
    return label if isinstance(label, set | frozenset) else [label]


class CRFDecoder(Decoder):
    """A linear map and a `CRF` (Winata 2021, section 3.2.2).

    ``loss = -mean over sentences of log p(tags)``. If tags are missing or partly known (sets of
    tags), ``p`` is the probability of all sequences that agree with the known part: ``log p = log
    Z(allowed) - log Z``.

    Args:
        in_features: The size of a word's features.
        tags: The names of the tags in the order of their ids, or their number.
        constraints: The tags that may begin, follow each other and end, in training and decoding.
        extra_emissions: Whether the last features, one per tag, are scores (`WideAndDeepEncoder`).
            They are added to the scores that the linear map gives for the other features.

    Shape:
        features ``(batch, word, in_features)``, tags and mask ``(batch, word)``.

    Raises:
        ValueError: If shapes do not fit, or, on a CPU, a tag id is outside the tag set.
        TypeError: If the mask is not bool.

    Example:
        >>> decoder = CRFDecoder(8, ["O", "B-ES", "I-ES"])
        >>> decoder.decode(torch.randn(2, 3, 8)).shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        in_features: int,
        tags: Sequence[str] | int,
        *,
        constraints: Constraints | None = None,
        extra_emissions: bool = False,
    ) -> None:
        super().__init__(in_features, tags, extra_emissions=extra_emissions)
        self.crf = CRF(self.num_tags, constraints=constraints)
        self.constraints = constraints

    def loss(
        self, features: Features, tags: TagIds | Allowed, mask: Mask = None
    ) -> Float[Tensor, ""]:
        """Compute the mean loss per sentence in nats; see `Decoder.loss`."""
        log_prob = self.crf.partial_log_prob(self.emissions(features, mask), tags, mask)
        return -log_prob.sum() / max(1, len(tags))

    def decode(self, features: Features, mask: Mask = None) -> TagIds:
        """Return the ids of the most likely sequence of tags; -100 at masked positions."""
        return self.crf.decode_tensor(self.emissions(features, mask), mask)

    def probabilities(self, features: Features, mask: Mask = None) -> Emissions:
        """Compute the marginal probability of each tag at each word, in at least float32."""
        return self.crf.marginals(self.emissions(features, mask), mask)


class SoftmaxDecoder(Decoder):
    """A linear map and a softmax for each word on its own.

    ``loss = -mean over words of log softmax(W h + b)[tag]``; for a set of tags, the log of the sum
    of their probabilities. Words with an unknown tag or a set of all tags do not count.

    Args:
        in_features: The size of a word's features.
        tags: The names of the tags in the order of their ids, or their number.
        dropout: The dropout probability of the features, in training.
        criterion: Another loss of the words' scores and tags: `LabelCrossEntropy` with weights or
            smoothing, `FocalLoss`, or a module of your own from
            ``(logits (word, label), labels (word))`` to a mean in nats, as ``nn.CrossEntropyLoss``.
            Your module must not count a tag of -100. The cross-entropy if None.

    Shape:
        features ``(batch, word, in_features)``, tags and mask ``(batch, word)``.

    Raises:
        ValueError: If shapes do not fit, or, on a CPU, a tag id is outside the tag set.
        TypeError: If the mask is not bool, or a criterion gets sets of tags.

    Example:
        >>> decoder = SoftmaxDecoder(8, ["X", "VERB", "NOUN"])
        >>> decoder.decode(torch.randn(2, 3, 8)).shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        in_features: int,
        tags: Sequence[str] | int,
        *,
        dropout: float = 0.0,
        criterion: nn.Module | None = None,
    ) -> None:
        check_probability(dropout=dropout)
        super().__init__(in_features, tags)
        check_criterion(criterion, self.num_tags)
        self.dropout, self.criterion = dropout, criterion

    def loss(
        self, features: Features, tags: TagIds | Allowed, mask: Mask = None
    ) -> Float[Tensor, ""]:
        """Compute the mean loss per word in nats, or the criterion's; see `Decoder.loss`."""
        emissions = self.emissions(features, mask)
        check_tensor("tags", tags)
        sets = tags.dtype == torch.bool
        check_shape("tags", tags, emissions.shape if sets else emissions.shape[:2])
        if not sets:
            if mask is not None:
                tags = torch.where(mask, tags, IGNORE_INDEX)
            criterion = self.criterion or cross_entropy
            loss: Tensor = criterion(emissions.flatten(0, 1), tags.flatten())
            return loss
        if self.criterion is not None:
            raise TypeError(must("tags", "be single names for a criterion", "sets"))
        log_probs = widened(emissions).log_softmax(-1)
        inside = log_probs.masked_fill(~tags, float("-inf")).logsumexp(-1)
        known = ~tags.all(-1) if mask is None else ~tags.all(-1) & mask
        return -torch.where(known, inside, 0.0).sum() / known.sum().clamp(min=1)

    def decode(self, features: Features, mask: Mask = None) -> TagIds:
        """Return the id of each word's most likely tag; -100 where masked or scores are NaN."""
        best, tags = self.emissions(features, mask).max(-1)
        sound = best > float("-inf")  # False for NaN
        return torch.where(sound if mask is None else sound & mask, tags, IGNORE_INDEX)

    def probabilities(self, features: Features, mask: Mask = None) -> Emissions:
        """Compute the softmax of each word's scores, in at least float32; zeros where masked."""
        return select_valid(widened(self.emissions(features, mask)).softmax(-1), mask)


def check_decoder(name: str, decoder: object) -> None:
    """Require a decoder whose emissions are scores of independent words or of a chain."""
    fits = isinstance(decoder, CRFDecoder | SoftmaxDecoder)
    require_type(fits, name, "be a CRFDecoder or a SoftmaxDecoder", decoder)
