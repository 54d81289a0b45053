"""A linear path beside a sequence encoder: words and their neighbours score the tags directly."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from polyembed._checks import check_positive
from polyembed.encoders.sequence import Mask, SequenceEncoder, in_place, reorder
from polyembed.functional.masking import select_valid, valid_first


class WideAndDeepEncoder(SequenceEncoder):
    """Words in context beside scores of a window: ``[encoder(x_deep); s]`` (Cheng et al. 2016, wide
    and deep).

    A word's vector is ``[x_deep; u_0; u_-n; ...; u_-1; u_1; ...; u_n]``, where ``u_k`` are the
    scores, one per tag, that the word gives to the word k places before it:
    ``s_t = sum over k of u_k[t + k]``. Places outside the sentence have their own trained scores.
    `surface_scores` makes the scores; a decoder with ``extra_emissions=True`` adds them to its own.

    Args:
        encoder: A sequence encoder of ``x_deep``; None = the scores alone, as in a hand-featured
            CRF.
        num_tags: The number of tags.
        window: The number of neighbours on each side that count.

    Shape:
        ``x (batch, word, input_size)`` with
        ``input_size = encoder.input_size + num_tags * (2 * window + 1)``, ``mask``
        ``(batch, word)`` to ``(batch, word, encoder.embedding_dim + num_tags)``.

    Raises:
        ValueError: If sizes or shapes do not fit.
        TypeError: If the mask is not bool.

    Example:
        >>> from polyembed.encoders import LSTMSequenceEncoder
        >>> encoder = WideAndDeepEncoder(LSTMSequenceEncoder(30, hidden_size=20), num_tags=3)
        >>> encoder(torch.randn(2, 5, encoder.input_size)).shape
        torch.Size([2, 5, 43])
    """

    def __init__(self, encoder: nn.Module | None, num_tags: int, *, window: int = 2) -> None:
        check_positive(num_tags=num_tags, window=window)
        super().__init__()
        self.encoder, self.num_tags, self.window = encoder, num_tags, window
        self.deep_size = 0 if encoder is None else int(encoder.input_size)  # type: ignore[arg-type]
        self.input_size = self.deep_size + num_tags * (2 * window + 1)
        self.edges = nn.Parameter(torch.zeros(2 * window, num_tags))

    @property
    def embedding_dim(self) -> int:
        """The size of a word's vector in the result."""
        return self.num_tags + (0 if self.encoder is None else int(self.encoder.embedding_dim))  # type: ignore[arg-type]

    def forward(
        self, x: Float[Tensor, "batch word input"], mask: Mask = None
    ) -> Float[Tensor, "batch word embedding_dim"]:
        """Encode words in their context; see `SequenceEncoder.forward`."""
        self.check_inputs(x, mask)
        if mask is None:
            mask = x.new_ones(x.shape[:2], dtype=torch.bool)
        deep, own, near = torch.split(x, [self.deep_size, self.num_tags, self.edges.numel()], -1)
        # a hole in the mask is skipped: the word after it is the neighbour
        order, edges = valid_first(mask), self.edges.flatten()
        scores = reorder(select_valid(own, mask), order)
        near = torch.where(reorder(mask[..., None], order), reorder(near, order), edges)
        outside = edges.expand(x.shape[0], self.window, -1)
        near = torch.cat([outside, near, outside], 1)
        offsets = [k for k in range(-self.window, self.window + 1) if k]
        for offset, part in zip(offsets, near.chunk(len(offsets), -1), strict=True):
            scores = scores + part.narrow(1, self.window + offset, x.shape[1])
        scores = in_place(scores, mask)
        return scores if self.encoder is None else torch.cat([self.encoder(deep, mask), scores], -1)
