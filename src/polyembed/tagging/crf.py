"""The conditional random field as a module: `torchcrf.CRF`'s parameters and calls, on any mask, and what it lacks."""

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
    class_name,
    must,
    require,
)
from polyembed.functional import crf
from polyembed.tagging.constraints import Constraints

Emissions = Float[Tensor, "first second tag"]
Mask = Bool[Tensor, "first second"] | UInt8[Tensor, "first second"] | None


class CRF(torchcrf.CRF):  # type: ignore[misc]
    """A linear-chain conditional random field (Lafferty et al. 2001) over the valid positions of each row.

    ``log p(y | e) = score(y) - log sum_y' exp(score(y'))`` with the score of `polyembed.functional.path_score`.
    Parameters, ``forward`` and ``decode`` are those of ``torchcrf.CRF``: its checkpoints load, and programs that pass
    `batch_first` go on; the default differs. Beyond it: a mask may have holes and may start with one, tags under the
    mask may hold anything, -100 included, an empty row has log-probability 0 and decodes to ``[]``, and the sums are
    in float32 for narrower emissions. A score of -inf forbids a tag or a transition and nothing becomes NaN of it.

    The gradient is written down (the marginals), not traced; second derivatives and forward-mode are exact, too.
    ``forward`` and ``decode_tensor`` compile as one graph for all lengths, and never make the host wait for a GPU.

    Args:
        num_tags: How many tags.
        batch_first: Whether the first axis is the batch; True here, False in torchcrf.
        constraints: Which tags may begin, follow each other and end, in training and in decoding.

    Shape:
        emissions ``(batch, word, tag)``, tags and mask ``(batch, word)``.

    Raises:
        ValueError: Shapes that do not fit, a tag id outside the tag set, or emissions that forbid every path (`decode`
            alone looks for that; `decode_tensor` gives `ignore_index`).
        TypeError: A mask that is neither bool nor uint8.

    Example:
        >>> crf = CRF(3, constraints=Constraints.bio(["O", "B-PER", "I-PER"]))
        >>> emissions = torch.tensor([[[0.0, 0.0, 2.0], [0.0, 0.0, 2.0]]])
        >>> crf.decode(emissions)
        [[1, 2]]
        >>> crf.marginals(emissions)[0, 0, 2].item()
        0.0

    Deviations: `batch_first` is True by default. A row whose first position is masked is an error in torchcrf.
    `constraints` are buffers that no state dict holds, so that checkpoints stay torchcrf's.
    """

    allowed_transitions: Tensor | None
    allowed_start: Tensor | None
    allowed_end: Tensor | None

    def __init__(self, num_tags: int, batch_first: bool = True, *, constraints: Constraints | None = None) -> None:
        check_positive(num_tags=num_tags)
        if constraints is not None:
            if not isinstance(constraints, Constraints):
                raise TypeError(must("constraints", "be Constraints or None", class_name(constraints)))
            require(constraints.num_tags == num_tags, "constraints", f"be for {num_tags} tags", constraints.num_tags)
        super().__init__(num_tags, batch_first)
        self.constraints = constraints
        for name in ("transitions", "start", "end"):
            self.register_buffer(f"allowed_{name}", None, persistent=False)
        self._allow()

    def _allow(self) -> None:
        """Lay the constraints where the parameters are."""
        if self.constraints is not None:
            for name in ("transitions", "start", "end"):
                allowed = torch.tensor(getattr(self.constraints, name), device=self.transitions.device)
                setattr(self, f"allowed_{name}", allowed)

    def _apply(self, *arguments: Any, **options: Any) -> "CRF":
        super()._apply(*arguments, **options)
        self._allow()  # they are in no state dict: nothing else fills them after `to_empty`
        return self

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        super()._load_from_state_dict(*arguments, **options)
        self._allow()  # parameters may have come from the meta device

    def __repr__(self) -> str:
        constrained = "" if self.constraints is None else f", constraints={self.constraints!r}"
        return f"CRF({self.num_tags}, batch_first={self.batch_first}{constrained})"

    def forward(
        self,
        emissions: Emissions,
        tags: Int[Tensor, "first second"],
        mask: Mask = None,
        reduction: Literal["none", "sum", "mean", "token_mean"] = "sum",
    ) -> Float[Tensor, "*batch"]:
        """Compute the log-likelihood, as torchcrf does.

        Args:
            emissions: Scores of each tag at each word.
            tags: The path.
            mask: True (or 1) = valid; None = all valid.
            reduction: One value a row, their sum, their mean, or their sum over the number of valid words.

        Returns:
            Log-likelihood in nats.
        """
        check_choice("reduction", reduction, ("none", "sum", "mean", "token_mean"))
        log_prob = self.log_prob(emissions, tags, mask)
        if reduction == "none":
            return log_prob
        if reduction == "mean":
            return log_prob.sum() / max(1, log_prob.shape[0])
        if reduction == "token_mean":
            words = max(1, tags.numel()) if mask is None else mask.sum().clamp(min=1)
            return log_prob.sum() / words
        return log_prob.sum()

    def log_prob(
        self, emissions: Emissions, tags: Int[Tensor, "first second"], mask: Mask = None
    ) -> Float[Tensor, " batch"]:
        """Compute the log-probability of the given tags.

        Args:
            emissions: Scores of each tag at each word.
            tags: The path.
            mask: True (or 1) = valid; None = all valid.

        Returns:
            One value a row in nats: 0 for an empty row, -inf for tags that the constraints or a score of -inf forbid.
        """
        check_ids("tags", tags)
        shape = tuple(emissions.shape[:2])
        emissions, mask, *scores = self._prepare(emissions, mask)
        require(tuple(tags.shape) == shape, "tags", f"have shape {shape}", tuple(tags.shape))
        if not self.batch_first:
            tags = tags.transpose(0, 1)
        try:
            return crf.path_score(emissions, tags, mask, *scores) - crf.log_partition(emissions, mask, *scores)
        except (IndexError, RuntimeError) as error:
            if "out of bounds" not in str(error) and "out of range" not in str(error):
                raise
            raise ValueError(must("tags", f"lie in [0, {self.num_tags}) where the mask is on", error)) from error

    def decode(self, emissions: Emissions, mask: Mask = None) -> list[list[int]]:
        """Find the most likely tags, as torchcrf does.

        Args:
            emissions: Scores of each tag at each word.
            mask: True (or 1) = valid; None = all valid.

        Returns:
            The tag ids of each row's valid words.

        Raises:
            ValueError: Emissions that, with the constraints, leave a row no path at all, or NaN.
        """
        emissions, mask, *scores = self._prepare(emissions, mask)
        tags = crf.viterbi(emissions, mask, *scores, ignore_index=-1)
        ends = mask.sum(1).cumsum(0).tolist()
        valid = tags[mask].tolist()
        paths = [valid[start:end] for start, end in itertools.pairwise([0, *ends])]
        if -1 in valid:
            row = next(i for i, path in enumerate(paths) if -1 in path)
            rule = "leave each row a path that is not forbidden, and hold no NaN"
            raise ValueError(must("emissions", rule, f"none in row {row}"))
        return paths

    def decode_tensor(
        self, emissions: Emissions, mask: Mask = None, *, ignore_index: int = -100
    ) -> Int[Tensor, "batch word"]:
        """Find the most likely tags, as one tensor, batch first.

        Args:
            emissions: Scores of each tag at each word.
            mask: True (or 1) = valid; None = all valid.
            ignore_index: What stands at masked positions, and in rows that have no path that is not forbidden.

        Returns:
            ``(batch, word)`` int64.
        """
        return crf.viterbi(*self._prepare(emissions, mask), ignore_index=ignore_index)

    def marginals(self, emissions: Emissions, mask: Mask = None) -> Float[Tensor, "batch word tag"]:
        """Compute the probability of each tag at each word over all paths, batch first.

        Args:
            emissions: Scores of each tag at each word.
            mask: True (or 1) = valid; None = all valid.

        Returns:
            ``(batch, word, tag)``; zeros at masked positions.
        """
        return crf.marginals(*self._prepare(emissions, mask))

    def entropy(self, emissions: Emissions, mask: Mask = None) -> Float[Tensor, " batch"]:
        """Compute the entropy of the distribution over paths.

        Args:
            emissions: Scores of each tag at each word.
            mask: True (or 1) = valid; None = all valid.

        Returns:
            One value a row in nats, 0 for an empty row.
        """
        return crf.entropy(*self._prepare(emissions, mask))

    def n_best(self, emissions: Emissions, k: int, mask: Mask = None, *, ignore_index: int = -100) -> crf.BestPaths:
        """Find the k most likely paths, batch first.

        Args:
            emissions: Scores of each tag at each word.
            k: How many.
            mask: True (or 1) = valid; None = all valid.
            ignore_index: What stands at masked positions, and where a row has fewer paths.

        Returns:
            ``tags (batch, path, word)`` and ``log_probs (batch, path)``, the best first.
        """
        return crf.n_best(*self._prepare(emissions, mask), k, ignore_index=ignore_index)

    def sample(
        self,
        emissions: Emissions,
        num_samples: int = 1,
        mask: Mask = None,
        *,
        generator: torch.Generator | None = None,
        ignore_index: int = -100,
    ) -> Int[Tensor, "sample batch word"]:
        """Draw paths with their probability.

        Args:
            emissions: Scores of each tag at each word.
            num_samples: How many paths of each row.
            mask: True (or 1) = valid; None = all valid.
            generator: Draws the numbers, on the device of the emissions; torch's own if None.
            ignore_index: What stands at masked positions, and in rows that have no path that is not forbidden.

        Returns:
            ``(sample, batch, word)`` int64.
        """
        arguments = self._prepare(emissions, mask)
        return crf.sample(*arguments, num_samples, generator=generator, ignore_index=ignore_index)

    def constrained_scores(self, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Give transitions, start and end scores, with -inf where the constraints forbid.

        Args:
            dtype: Of the result; the parameters' own if None.

        Returns:
            ``(tag, tag)`` from and to, ``(tag,)``, ``(tag,)``: what the functions of `polyembed.functional` take.
        """
        dtype = dtype or self.transitions.dtype
        transitions, start, end = (
            scores.to(dtype) if allowed is None else scores.to(dtype).masked_fill(~allowed, float("-inf"))
            for scores, allowed in (
                (self.transitions, self.allowed_transitions),
                (self.start_transitions, self.allowed_start),
                (self.end_transitions, self.allowed_end),
            )
        )
        return transitions, start, end

    def _prepare(self, emissions: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Check, put the batch first, widen to at least float32, and forbid: the arguments of `functional.crf`."""
        check_dim("emissions", emissions, 3, "batch, word, tag" if self.batch_first else "word, batch, tag")
        check_last_dim("emissions", emissions, self.num_tags)
        if mask is None:
            mask = emissions.new_ones(emissions.shape[:2], dtype=torch.bool)
        if mask.dtype not in (torch.bool, torch.uint8):
            raise TypeError(must("mask", "be bool (True = valid), or torchcrf's uint8", mask.dtype))
        shape = tuple(emissions.shape[:2])
        require(tuple(mask.shape) == shape, "mask", f"have shape {shape}", tuple(mask.shape))
        if not self.batch_first:
            emissions, mask = emissions.transpose(0, 1), mask.transpose(0, 1)
        dtype = torch.promote_types(emissions.dtype, torch.float32)
        return emissions.to(dtype), mask.bool(), *self.constrained_scores(dtype)
