"""Decoders: features to tags.

``loss(features, tags, mask)`` is a mean in nats, ``decode(features, mask)`` gives the best tags.
"""

from abc import abstractmethod

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
    must,
    require,
)
from polyembed.crf import CRF, Constraints
from polyembed.functional.losses import IGNORE_INDEX, cross_entropy
from polyembed.functional.masking import select_valid
from polyembed.saving import PretrainedModule
from polyembed.tagging.losses import check_criterion


class Decoder(PretrainedModule):
    """Features to tags: a linear map to emissions, and a rule that makes tags of them.

    Args:
        in_features: The size of a word's features.
        num_tags: How many tags.
        extra_emissions: Whether the last `num_tags` features are scores, which are added to the
            linear map's.
    """

    def __init__(self, in_features: int, num_tags: int, *, extra_emissions: bool = False) -> None:
        check_positive(in_features=in_features, num_tags=num_tags)
        require(
            isinstance(extra_emissions, bool),
            "extra_emissions",
            "be True or False",
            repr(extra_emissions),
        )
        mapped = in_features - num_tags if extra_emissions else in_features
        require(mapped >= 0, "in_features", f"hold {num_tags} direct scores", in_features)
        super().__init__()
        self.in_features, self.num_tags, self.extra_emissions = (
            in_features,
            num_tags,
            extra_emissions,
        )
        self.linear = nn.Linear(mapped, num_tags) if mapped else None

    @property
    def constraints(self) -> Constraints | None:
        """The sequences of tags that the decoder can return; None = all."""
        return None

    def emissions(
        self,
        features: Float[Tensor, "batch word dim"],
        mask: Bool[Tensor, "batch word"] | None = None,
    ) -> Float[Tensor, "batch word tag"]:
        """Score each tag at each word: ``(batch, word, tag)``."""
        check_dim("features", features, 3, "batch, word, dim")
        check_last_dim("features", features, self.in_features)
        check_mask(mask, features.shape[:2])
        features = select_valid(features, mask)
        if self.linear is None:
            return features
        mapped = self.linear.in_features
        emissions: Tensor = self.linear(features[..., :mapped])
        return emissions + features[..., mapped:] if self.extra_emissions else emissions

    @abstractmethod
    def loss(
        self,
        features: Float[Tensor, "batch word dim"],
        tags: Int[Tensor, "batch word"],
        mask: Bool[Tensor, "batch word"] | None = None,
    ) -> Float[Tensor, ""]:
        """Compute a mean loss of the tags, in nats: over sentences or words, as the decoder states;
        0 over none.

        Args:
            features: Words' features.
            tags: Tag ids; anything where the mask is off.
            mask: True = a word; None = all are.

        Returns:
            A scalar.

        Raises:
            ValueError: ``tags must be in [0, num_tags) where the mask is on``.
        """

    @abstractmethod
    def decode(
        self,
        features: Float[Tensor, "batch word dim"],
        mask: Bool[Tensor, "batch word"] | None = None,
    ) -> Int[Tensor, "batch word"]:
        """Return the ids of the best tags; -100 at masked positions, and where scores of NaN leave no best tag."""

    @abstractmethod
    def probabilities(
        self,
        features: Float[Tensor, "batch word dim"],
        mask: Bool[Tensor, "batch word"] | None = None,
    ) -> Float[Tensor, "batch word tag"]:
        """Compute the probability of each tag at each word, which sum to 1 over the tags; zeros at masked positions."""

    def forward(
        self,
        features: Float[Tensor, "batch word dim"],
        mask: Bool[Tensor, "batch word"] | None = None,
    ) -> Float[Tensor, "batch word tag"]:
        """Score each tag at each word: `emissions`."""
        return self.emissions(features, mask)


class CRFDecoder(Decoder):
    """A linear map and a `CRF` (Winata 2021, section 3.2.2):
    ``loss = -mean over sentences of log p(tags)``.

    Args:
        in_features: The size of a word's features.
        num_tags: How many tags.
        constraints: Which tags may begin, follow each other and end, in training and in decoding.
        extra_emissions: Whether the last `num_tags` features are scores of the tags, which are added
            to those of the linear map over the others (`WideAndDeepEncoder`).

    Shape:
        features ``(batch, word, in_features)``, tags and mask ``(batch, word)``.

    Raises:
        ValueError: Shapes that do not fit, or a tag id outside the tag set.
        TypeError: A mask that is not bool.

    Example:
        >>> decoder = CRFDecoder(8, num_tags=5)
        >>> decoder.decode(torch.randn(2, 3, 8)).shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        in_features: int,
        num_tags: int,
        *,
        constraints: Constraints | None = None,
        extra_emissions: bool = False,
    ) -> None:
        super().__init__(in_features, num_tags, extra_emissions=extra_emissions)
        self.crf = CRF(num_tags, constraints=constraints)

    @property
    def constraints(self) -> Constraints | None:
        """Which tags may begin, follow each other and end."""
        return self.crf.constraints

    def loss(
        self,
        features: Float[Tensor, "batch word dim"],
        tags: Int[Tensor, "batch word"],
        mask: Bool[Tensor, "batch word"] | None = None,
    ) -> Float[Tensor, ""]:
        """Compute the mean negative log-probability of a sentence's tags.

        Args:
            features: Words' features.
            tags: Tag ids; anything where the mask is off, and -100 where the tag is not known: then
                the probability is that of all sequences that agree with the known tags
                (`CRF.partial_log_prob`).
            mask: True = a word; None = all are.

        Returns:
            A scalar in nats a sentence; an empty sentence counts as 0.
        """
        log_prob = self.crf.partial_log_prob(self.emissions(features, mask), tags, mask)
        return -log_prob.sum() / max(1, len(tags))

    def decode(
        self,
        features: Float[Tensor, "batch word dim"],
        mask: Bool[Tensor, "batch word"] | None = None,
    ) -> Int[Tensor, "batch word"]:
        """Return the ids of the most likely sequence of tags; -100 at masked positions."""
        return self.crf.decode_tensor(self.emissions(features, mask), mask)

    def probabilities(
        self,
        features: Float[Tensor, "batch word dim"],
        mask: Bool[Tensor, "batch word"] | None = None,
    ) -> Float[Tensor, "batch word tag"]:
        """Compute the marginal probability of each tag at each word, in at least float32; zeros at masked positions."""
        return self.crf.marginals(self.emissions(features, mask), mask)


class SoftmaxDecoder(Decoder):
    """A linear map and a softmax for each word on its own:
    ``loss = -mean over words of log softmax(W h + b)[tag]``.

    Args:
        in_features: The size of a word's features.
        num_tags: How many tags.
        dropout: Of the features, in training.
        criterion: Another loss of the words' scores and tags: `LabelCrossEntropy` with weights or
            smoothing, `FocalLoss`, or a module of your own,
            ``(logits (*batch, label), labels (*batch))`` to a mean in nats, for which a tag of -100
            must not count.

    Shape:
        features ``(batch, word, in_features)``, tags and mask ``(batch, word)``.

    Raises:
        ValueError: Shapes that do not fit, or a tag id outside the tag set.
        TypeError: A mask that is not bool.

    Example:
        >>> decoder = SoftmaxDecoder(8, num_tags=5)
        >>> decoder.decode(torch.randn(2, 3, 8)).shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        in_features: int,
        num_tags: int,
        *,
        dropout: float = 0.0,
        criterion: nn.Module | None = None,
    ) -> None:
        check_probability(dropout=dropout)
        super().__init__(in_features, num_tags)
        check_criterion(criterion, num_tags)
        self.dropout, self.criterion = dropout, criterion

    def emissions(
        self,
        features: Float[Tensor, "batch word dim"],
        mask: Bool[Tensor, "batch word"] | None = None,
    ) -> Float[Tensor, "batch word tag"]:
        """Score each tag at each word: ``(batch, word, tag)``."""
        return super().emissions(F.dropout(features, self.dropout, self.training), mask)

    def loss(
        self,
        features: Float[Tensor, "batch word dim"],
        tags: Int[Tensor, "batch word"],
        mask: Bool[Tensor, "batch word"] | None = None,
    ) -> Float[Tensor, ""]:
        """Compute the mean loss of a word's tag: its negative log-probability, or the criterion.

        Args:
            features: Words' features.
            tags: Tag ids; anything where the mask is off, and -100 where a word does not count.
            mask: True = a word; None = all are.

        Returns:
            A scalar in nats a word, or what the criterion gives; 0 if no word counts.
        """
        emissions = self.emissions(features, mask)
        require(
            tags.shape == emissions.shape[:2],
            "tags",
            f"have shape {tuple(emissions.shape[:2])}",
            tuple(tags.shape),
        )
        if mask is not None:
            tags = torch.where(mask, tags, IGNORE_INDEX)
        try:
            loss: Tensor = (cross_entropy if self.criterion is None else self.criterion)(
                emissions, tags
            )
        except ValueError as error:
            if not isinstance(error.__cause__, IndexError):
                raise
            rule = f"be in [0, {self.num_tags}) where the mask is on"
            raise ValueError(must("tags", rule, error.__cause__)) from error
        return loss

    def decode(
        self,
        features: Float[Tensor, "batch word dim"],
        mask: Bool[Tensor, "batch word"] | None = None,
    ) -> Int[Tensor, "batch word"]:
        """Return the id of each word's most likely tag; -100 at masked positions and where scores hold NaN."""
        best, tags = self.emissions(features, mask).max(-1)
        sound = best > float("-inf")  # not so of NaN
        return torch.where(sound if mask is None else sound & mask, tags, IGNORE_INDEX)

    def probabilities(
        self,
        features: Float[Tensor, "batch word dim"],
        mask: Bool[Tensor, "batch word"] | None = None,
    ) -> Float[Tensor, "batch word tag"]:
        """Compute the softmax of each word's scores, in at least float32; zeros at masked positions."""
        emissions = self.emissions(features, mask)
        wide = emissions.to(torch.promote_types(emissions.dtype, torch.float32)).softmax(-1)
        return select_valid(wide, mask)
