"""The conditional random field as a module, with the parameters and calls of `torchcrf.CRF`."""

import itertools
from typing import Any, Literal

import torch
import torchcrf
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from polyembed._checks import (
    check_choice,
    check_dim,
    check_ids,
    check_last_dim,
    check_positive,
    check_shape,
    check_tensor,
    must,
    require,
    require_type,
)
from polyembed.crf import scores
from polyembed.crf.best import BestPaths, n_best, sample, viterbi
from polyembed.crf.constraints import Constraints
from polyembed.crf.partition import is_transformed

Emissions = Float[Tensor, "first second tag"]
Tags = Int[Tensor, "first second"]
Allowed = Bool[Tensor, "first second tag"]
Mask = Bool[Tensor, "first second"] | UInt8[Tensor, "first second"] | None


class CRF(torchcrf.CRF):  # type: ignore[misc]
    """A linear-chain conditional random field over the valid words (Lafferty et al. 2001).

    ``log p(y | e) = score(y) - log sum_y' exp(score(y'))`` with the score of `polyembed.crf`.
    Parameters, ``forward`` and ``decode`` are as in ``torchcrf.CRF``, so torchcrf's checkpoints
    load. In addition, a mask may have holes; tags at masked positions may be anything, -100
    included; an empty row has log-probability 0 and decodes to ``[]``; and sums are in at least
    float32. A score of -inf forbids a tag or a transition, without NaN in values or gradients.

    Gradients are exact to any order, and in forward mode. ``forward`` and ``decode_tensor`` compile
    as one graph for all lengths (with first derivatives only), and never make the host wait for a
    GPU.

    Args:
        num_tags: The number of tags.
        batch_first: Whether the first axis is the batch; the default is False in torchcrf.
        constraints: The tags that may begin, follow each other and end, in training and in
            decoding.

    Shape:
        emissions ``(batch, word, tag)``, tags and mask ``(batch, word)``; True (or 1) = valid, None
        = all valid.

    Raises:
        ValueError: If shapes do not fit; if a tag id is outside the tag set (on a CPU); or if, in
            `decode`, a row has NaN or every path of it is forbidden.
        TypeError: If the mask is neither bool nor uint8.

    Example:
        >>> crf = CRF(3, constraints=Constraints.bio(["O", "B-PER", "I-PER"]))
        >>> emissions = torch.tensor([[[0.0, 0.0, 2.0], [0.0, 0.0, 2.0]]])
        >>> crf.decode(emissions)
        [[1, 2]]
        >>> crf.marginals(emissions)[0, 0, 2].item()
        0.0

    Deviations: `batch_first` is True by default. A row whose first position is masked is an error
    in torchcrf. `constraints` are non-persistent buffers, so checkpoints stay compatible with
    torchcrf.
    """

    allowed_transitions: Tensor | None
    allowed_start: Tensor | None
    allowed_end: Tensor | None

    def __init__(
        self, num_tags: int, batch_first: bool = True, *, constraints: Constraints | None = None
    ) -> None:
        check_positive(num_tags=num_tags)
        allowed = isinstance(constraints, Constraints | None)
        require_type(allowed, "constraints", "be Constraints or None", constraints)
        count = num_tags if constraints is None else constraints.num_tags
        require(count == num_tags, "constraints", f"be for {num_tags} tags", count)
        super().__init__(num_tags, batch_first)
        self.constraints = constraints
        self._fill_buffers()

    def _fill_buffers(self) -> None:
        """Write the constraints into buffers on the parameters' device."""
        for name in ("transitions", "start", "end"):
            allowed = None
            if self.constraints is not None:
                tags = getattr(self.constraints, name)
                allowed = torch.tensor(tags, device=self.transitions.device)
            self.register_buffer(f"allowed_{name}", allowed, persistent=False)

    def _apply(self, *arguments: Any, **options: Any) -> "CRF":
        super()._apply(*arguments, **options)
        self._fill_buffers()  # no state dict fills them after `to_empty`
        return self

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        super()._load_from_state_dict(*arguments, **options)
        self._fill_buffers()  # parameters may have come from the meta device

    def __repr__(self) -> str:
        constrained = "" if self.constraints is None else f", constraints={self.constraints!r}"
        return f"CRF({self.num_tags}, batch_first={self.batch_first}{constrained})"

    def forward(
        self,
        emissions: Emissions,
        tags: Tags,
        mask: Mask = None,
        reduction: Literal["none", "sum", "mean", "token_mean"] = "sum",
    ) -> Float[Tensor, "*batch"]:
        """Compute the log-likelihood in nats, as torchcrf does.

        Args:
            emissions: The scores of each tag at each word.
            tags: The tag ids of the path.
            mask: True (or 1) = valid; None = all valid.
            reduction: ``"none"`` for one value per row, ``"sum"`` for their sum, ``"mean"`` for
                their mean, or ``"token_mean"`` for their sum over the number of valid words.

        Returns:
            The log-likelihood: a value per row for ``"none"``, else a scalar.
        """
        check_choice("reduction", reduction, ("none", "sum", "mean", "token_mean"))
        log_prob = self.log_prob(emissions, tags, mask)
        if reduction == "none":
            return log_prob
        total = log_prob.sum()
        if reduction == "mean":
            return total / max(1, log_prob.shape[0])
        if reduction == "token_mean":
            return total / (max(1, tags.numel()) if mask is None else mask.sum().clamp(min=1))
        return total

    def log_prob(
        self, emissions: Emissions, tags: Tags, mask: Mask = None
    ) -> Float[Tensor, " batch"]:
        """Return the log-probability of each row's tags, 0 for an empty row, -inf if forbidden."""
        prepared = self._prepare(emissions, mask)
        return self._log_prob(self._prepare_tags(emissions, tags), *prepared)

    def partial_log_prob(
        self, emissions: Emissions, tags: Tags | Allowed, mask: Mask = None
    ) -> Float[Tensor, " batch"]:
        """Compute the log-probability of a partial annotation (Tsuboi et al. 2008).

        It is the log of the summed probabilities of all paths that agree with the tags. Its
        negative mean is a loss for data in which some words have no tag. Known and unknown tags
        share one computation, which compiles and never makes the host wait for a GPU. On a CPU,
        tags that are all known cost as much as `log_prob`.

        Args:
            emissions: The scores of each tag at each word.
            tags: Tag ids, with -100 where the tag is not known; or the set of each word's possible
                tags, a bool tensor with the axes of `emissions`.
            mask: True (or 1) = valid; None = all valid.

        Returns:
            One value per row in nats: `log_prob` where all tags are known, 0 where no tag is.
        """
        sets = getattr(tags, "dtype", None) == torch.bool
        prepared, mask, *others = self._prepare(emissions, mask)
        tags = self._prepare_tags(emissions, tags, sets=sets)
        plain = not (torch.compiler.is_compiling() or is_transformed(tags) or is_transformed(mask))
        if not sets and tags.device.type == "cpu" and plain:
            known = tags[mask & (tags != scores.ANY_TAG)]
            if len(known) == mask.sum():
                return self._log_prob(tags, prepared, mask, *others)
            outside = known[(known < 0) | (known >= self.num_tags)]
            rule = f"be in [0, {self.num_tags}) or {scores.ANY_TAG} where the mask is on"
            require(len(outside) == 0, "tags", rule, outside[:1].tolist())
        return scores.partial_log_prob(prepared, tags, mask, *others)

    def decode(self, emissions: Emissions, mask: Mask = None) -> list[list[int]]:
        """Return the most likely tags of each row's valid words, as torchcrf does.

        Args:
            emissions: The scores of each tag at each word.
            mask: True (or 1) = valid; None = all valid.

        Returns:
            A list of tag ids per row.

        Raises:
            ValueError: If the emissions of a row hold NaN, or forbid every path that the
                constraints allow.
        """
        emissions, mask, *others = self._prepare(emissions, mask)
        tags = viterbi(emissions, mask, *others, ignore_index=-1)
        ends = mask.sum(1).cumsum(0).tolist()
        valid = tags[mask].tolist()
        paths = [valid[start:end] for start, end in itertools.pairwise([0, *ends])]
        if -1 in valid:
            row = next(i for i, path in enumerate(paths) if -1 in path)
            raise ValueError(f"emissions of row {row} contain NaN or forbid every path")
        return paths

    def decode_tensor(
        self, emissions: Emissions, mask: Mask = None, *, ignore_index: int = -100
    ) -> Int[Tensor, "batch word"]:
        """Return the best tags, batch first; `ignore_index` where masked or without a path."""
        return viterbi(*self._prepare(emissions, mask), ignore_index=ignore_index)

    def marginals(self, emissions: Emissions, mask: Mask = None) -> Float[Tensor, "batch word tag"]:
        """Return the probability of each tag at each word, batch first; zeros where masked."""
        return scores.marginals(*self._prepare(emissions, mask))

    def entropy(self, emissions: Emissions, mask: Mask = None) -> Float[Tensor, " batch"]:
        """Return the entropy of the distribution over paths in nats, 0 for an empty row."""
        return scores.entropy(*self._prepare(emissions, mask))

    def n_best(
        self, emissions: Emissions, k: int, mask: Mask = None, *, ignore_index: int = -100
    ) -> BestPaths:
        """Return the k most likely paths of each row and their log-probabilities."""
        return n_best(*self._prepare(emissions, mask), k, ignore_index=ignore_index)

    def sample(
        self,
        emissions: Emissions,
        num_samples: int = 1,
        mask: Mask = None,
        *,
        generator: torch.Generator | None = None,
        ignore_index: int = -100,
    ) -> Int[Tensor, "sample batch word"]:
        """Draw paths by their probability; see `polyembed.crf.sample` for the arguments."""
        arguments = self._prepare(emissions, mask)
        return sample(*arguments, num_samples, generator=generator, ignore_index=ignore_index)

    def constrained_scores(self, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return transitions, start and end scores for `polyembed.crf`, with -inf where the
        constraints forbid them.

        Args:
            dtype: The dtype of the result; the parameters' own if None.

        Returns:
            The transitions ``(tag, tag)``, from and to, and the start and end scores ``(tag,)``.
        """
        dtype = dtype or self.transitions.dtype
        transitions, start, end = (
            x.to(dtype) if allowed is None else x.to(dtype).masked_fill(~allowed, float("-inf"))
            for x, allowed in (
                (self.transitions, self.allowed_transitions),
                (self.start_transitions, self.allowed_start),
                (self.end_transitions, self.allowed_end),
            )
        )
        return transitions, start, end

    def _prepare(
        self, emissions: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return the arguments of `polyembed.crf`: batch first, at least float32, constrained."""
        axes = "batch, word, tag" if self.batch_first else "word, batch, tag"
        check_dim("emissions", emissions, 3, axes)
        check_last_dim("emissions", emissions, self.num_tags)
        if mask is None:
            mask = emissions.new_ones(emissions.shape[:2], dtype=torch.bool)
        check_tensor("mask", mask)
        if mask.dtype not in (torch.bool, torch.uint8):
            raise TypeError(must("mask", "be bool (True = valid), or torchcrf's uint8", mask.dtype))
        check_shape("mask", mask, emissions.shape[:2])
        if not self.batch_first:
            emissions, mask = emissions.transpose(0, 1), mask.transpose(0, 1)
        dtype = torch.promote_types(emissions.dtype, torch.float32)
        return emissions.to(dtype), mask.bool(), *self.constrained_scores(dtype)

    def _prepare_tags(self, emissions: Tensor, tags: Tensor, *, sets: bool = False) -> Tensor:
        """Return the tags batch first, after a check of their dtype and shape."""
        if not sets:
            check_ids("tags", tags)
        check_shape("tags", tags, emissions.shape if sets else emissions.shape[:2])
        return tags if self.batch_first else tags.transpose(0, 1)

    def _log_prob(self, tags: Tensor, emissions: Tensor, *others: Tensor) -> Tensor:
        try:
            return scores.log_prob(emissions, tags, *others)
        except (IndexError, RuntimeError) as error:  # on a CPU; on a GPU the gather asserts
            if "out of" not in str(error):
                raise
            rule = f"be in [0, {self.num_tags}) where the mask is on"
            raise ValueError(must("tags", rule, error)) from error
