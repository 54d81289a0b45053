"""LASER's encoder: a bidirectional LSTM over pieces; the maximum of its states is a sentence's
vector.
"""

import os
import pickle
from collections import deque
from collections.abc import Iterator
from typing import Any, Literal, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from polyembed._checks import (
    check_dim,
    check_file,
    check_ids,
    check_mask,
    check_positive,
    class_name,
    must,
    require,
)
from polyembed.embeddings.table import look_up
from polyembed.encoders.sequence import (
    WEIGHTS,
    bidirectional,
    direction_weights,
    in_place,
    reversal,
)
from polyembed.functional.masking import masked_max, valid_first
from polyembed.saving import PretrainedModule
from polyembed.text.fastbpe import FastBPETokenizer
from polyembed.text.laser import (
    LaserTokenizer,
    PieceDictionary,
    SentencePieceTokenizer,
    open_sentencepiece,
)
from polyembed.vectors.laser import fetch_laser, read_merges, read_pieces

Ids = Int[Tensor, "batch piece"]
Mask = Bool[Tensor, "batch piece"] | None

DEFAULTS = {"embed_dim": 320, "hidden_size": 512, "num_layers": 1}
"""The params that a checkpoint may leave out, as in the released code."""


class LaserEncoder(PretrainedModule):
    """The encoder of LASER 1 and 2:
    ``v(t_1, ..., t_n) = max_i [h_L(i) forwards; h_L(i) backwards]``.

    The embeddings of pieces pass through `num_layers` bidirectional LSTM layers (Artetxe and
    Schwenk 2019, section 3.1). Calling the module computes sentence vectors; `hidden_states`
    returns every layer. Parameters are named as in the released checkpoints. Each direction of each
    layer runs by itself over unpacked rows, so that a GPU's host never waits for lengths. On a GPU
    cuDNN multiplies in TF32, as for `LSTMSequenceEncoder`. Neither
    ``torch.compile(fullgraph=True)`` nor ``torch.export`` with a free length takes an LSTM. The
    kernels of cuDNN, and of oneDNN in float32, have no second derivatives: where those are needed,
    call under ``torch.backends.cudnn.flags(enabled=False)`` or
    ``torch.backends.mkldnn.flags(enabled=False)``.

    Args:
        num_embeddings: The number of pieces.
        embedding_dim: The size of a piece's embedding.
        hidden_size: The size of a state in each direction.
        num_layers: The number of layers: 5 in the released encoders.
        padding_idx: The id of padding.
        dictionary: The ids of the pieces, if known.

    Shape:
        ids ``(batch, piece)`` to ``(batch, 2 * hidden_size)``.

    Raises:
        ValueError: If sizes or shapes do not fit, ids are outside the table, or the dictionary has
            another size.
        TypeError: If ids are not integers, or the mask is not bool.

    Example:
        >>> encoder = LaserEncoder(11, 4, 3, num_layers=2).eval()
        >>> ids = torch.tensor([[5, 7, 2], [6, 2, 1]])  # 2 ends a sentence, 1 pads
        >>> encoder(ids).shape, [tuple(states.shape) for states in encoder.hidden_states(ids)]
        (torch.Size([2, 6]), [(2, 3, 4), (2, 3, 6), (2, 3, 6)])

    Deviations: a row without pieces gives zeros, where the released code fails.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int = 320,
        hidden_size: int = 512,
        *,
        num_layers: int = 5,
        padding_idx: int = 1,
        dictionary: PieceDictionary | None = None,
    ) -> None:
        check_positive(
            num_embeddings=num_embeddings,
            embedding_dim=embedding_dim,
            hidden_size=hidden_size,
            num_layers=num_layers,
        )
        if dictionary is not None:
            size = len(dictionary)
            require(size == num_embeddings, "dictionary", f"hold {num_embeddings} pieces", size)
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.hidden_size, self.num_layers = hidden_size, num_layers
        self.padding_idx, self.dictionary = padding_idx, dictionary
        self.embed_tokens = nn.Embedding(num_embeddings, embedding_dim, padding_idx=padding_idx)
        self.lstm = _LayeredLSTM(embedding_dim, hidden_size, num_layers, bidirectional=True)

    @classmethod
    def from_checkpoint(cls, path: str | os.PathLike[str]) -> Self:
        """Load a released checkpoint, ``bilstm.93langs.2018-12-26.pt`` or ``laser2.pt``, in
        evaluation mode.

        Only tensors and plain data are read: code in the file is never run.

        Args:
            path: The file.

        Returns:
            The encoder and its dictionary.

        Raises:
            FileNotFoundError: If `path` is not a file.
            ValueError: If the file is damaged, holds code, or is of another architecture (LASER 3
                is a Transformer); or if its weights or its dictionary have other sizes.
        """
        path = check_file(path, where="See polyembed.vectors.fetch_laser")
        try:
            data = torch.load(path, map_location="cpu", weights_only=True)
            params = {**DEFAULTS, **data["params"]}
            state = {k: x.to(torch.float32, copy=True) for k, x in data["model"].items()}
            sizes = [int(params[name]) for name in ("num_embeddings", "embed_dim", "hidden_size")]
            options: dict[str, Any] = {k: int(params[k]) for k in ("num_layers", "padding_idx")}
            options["dictionary"] = PieceDictionary.from_ids(data["dictionary"])
        except pickle.UnpicklingError as error:
            rule = (
                "hold tensors and plain data only, as LASER 1 and 2 do (LASER 3 is a Transformer)"
            )
            raise ValueError(must(str(path), rule, str(error).splitlines()[0])) from error
        except Exception as error:  # torch raises many kinds for a damaged file
            rule = "be a whole LASER 1 or 2 checkpoint, with params, model and dictionary"
            raise ValueError(must(str(path), rule, f"{class_name(error)}: {error}")) from error
        try:
            with torch.device("meta"):  # no memory, no random numbers
                encoder = cls(*sizes, **options)
            encoder.load_state_dict(state, assign=True)
        except (RuntimeError, ValueError) as error:
            raise ValueError(must(str(path), "hold parts that fit together", error)) from error
        return encoder.eval()

    def forward(self, token_ids: Ids, mask: Mask = None) -> Float[Tensor, "batch dim"]:
        """Encode sentences.

        Args:
            token_ids: Ids of pieces, ``</s>`` last.
            mask: True = a piece; if None, every id but the padding's is a piece.

        Returns:
            The maximum over time of the last layer, ``(batch, 2 * hidden_size)``; zeros for a row
            without pieces.
        """
        mask = self._mask(token_ids, mask)
        return masked_max(self.last_hidden_state(token_ids, mask), mask)

    def hidden_states(
        self, token_ids: Ids, mask: Mask = None
    ) -> list[Float[Tensor, "batch piece dim"]]:
        """Compute the embeddings and the states of each layer.

        Args:
            token_ids: Ids of pieces.
            mask: As in `forward`.

        Returns:
            The embeddings, ``(batch, piece, embedding_dim)``, then each layer's states,
            ``(batch, piece, 2 * hidden_size)``, forwards first; zeros at padding.
        """
        mask = self._mask(token_ids, mask)
        return [in_place(x, mask) for x in self._layers(token_ids, mask)]

    def last_hidden_state(
        self, token_ids: Ids, mask: Mask = None
    ) -> Float[Tensor, "batch piece dim"]:
        """Compute the states of the last layer; without gradients, earlier layers are freed on the
        way.

        Args:
            token_ids: Ids of pieces.
            mask: As in `forward`.

        Returns:
            ``(batch, piece, 2 * hidden_size)``; zeros at padding.
        """
        mask = self._mask(token_ids, mask)
        return in_place(deque(self._layers(token_ids, mask), maxlen=1).pop(), mask)

    def _mask(self, token_ids: Tensor, mask: Tensor | None) -> Tensor:
        check_dim("token_ids", token_ids, 2, "batch, piece")
        check_ids("token_ids", token_ids)
        check_mask(mask, token_ids.shape)
        return token_ids != self.padding_idx if mask is None else mask

    def _layers(self, token_ids: Tensor, mask: Tensor) -> Iterator[Tensor]:
        """Yield the embeddings and each layer's states, with each row's pieces at the front."""
        ids = torch.where(mask, token_ids, self.padding_idx).gather(1, valid_first(mask))
        states = look_up(ids, self.embed_tokens.weight, self.padding_idx, name="token_ids")
        yield states
        reverse = reversal(mask.sum(1), ids.shape[1])
        for layer in range(self.num_layers):
            both = (direction_weights(self.lstm, layer, reverse=back) for back in (False, True))
            if ids.numel():
                states = bidirectional(states, reverse, *both)
            else:  # the LSTM kernels take no empty batch
                states = states.sum().expand(*ids.shape, 2 * self.hidden_size)
            yield states


class _LayeredLSTM(nn.LSTM):
    """The parameters of an `nn.LSTM`, with each direction of each layer in memory so that cuDNN
    runs it alone.
    """

    def flatten_parameters(self) -> None:
        """Place each direction's weights in one block of memory, as cuDNN needs them; no effect off
        the GPU.
        """
        if not self.weight_ih_l0.is_cuda:
            return
        for layer in range(self.num_layers):
            size = 2 * self.hidden_size if layer else self.input_size
            for reverse in (False, True):
                one = nn.LSTM(size, self.hidden_size, device="meta")
                weights = direction_weights(self, layer, reverse=reverse)
                for name, weight in zip(WEIGHTS, weights, strict=True):
                    setattr(one, f"{name}_l0", weight)
                one.flatten_parameters()


def load_laser(
    version: Literal["laser1", "laser2"] = "laser2",
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    language: str = "en",
) -> tuple[LaserEncoder, LaserTokenizer]:
    """Load a public LASER encoder with its tokenisation; files that the cache lacks are downloaded.

    Args:
        version: ``"laser1"`` or ``"laser2"``.
        cache_dir: As in `polyembed.vectors.fetch_laser`.
        language: The two-letter code of the language whose rules Moses applies.

    Returns:
        The encoder, in evaluation mode, and the tokeniser: ``LaserTop(*load_laser("laser2"))``.

    Raises:
        FileNotFoundError: If a file is missing and cannot be downloaded.
        ValueError: If `version` is unknown, or a file is damaged.
    """
    files = fetch_laser(version, cache_dir=cache_dir)
    encoder = LaserEncoder.from_checkpoint(files.checkpoint)
    dictionary = encoder.dictionary
    assert dictionary is not None  # a checkpoint has one
    tokenizer: LaserTokenizer
    if version == "laser2":
        model = open_sentencepiece(files.pieces)
        tokenizer = SentencePieceTokenizer(model, dictionary, language=language)
    else:
        merges, vocabulary = read_merges(files.pieces), read_pieces(files.vocabulary)
        tokenizer = FastBPETokenizer(merges, dictionary, vocabulary=vocabulary, language=language)
    return encoder, tokenizer
