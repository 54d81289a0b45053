"""LASER's encoder: a bidirectional LSTM over pieces, whose states are word vectors and their maximum a sentence's."""

import mmap
import os
import pickle
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from polyembed._checks import (
    check_dim,
    check_file,
    check_ids,
    check_mask,
    check_positive,
    class_name,
    is_count,
    must,
    require,
)
from polyembed._pretrained import PretrainedModule, repr_call
from polyembed.encoders._bilstm import bidirectional, reorder, reversal
from polyembed.functional.masking import masked_max, valid_first
from polyembed.text.laser_tokenizers import (
    FastBPETokenizer,
    LaserTokenizer,
    SentencePieceTokenizer,
    open_sentencepiece,
)
from polyembed.text.piece_dictionary import PieceDictionary
from polyembed.vectors.laser import fetch_laser, read_merges, read_pieces

PARTS = ("params", "model", "dictionary")
SIZES = ("num_embeddings", "embed_dim", "hidden_size", "num_layers", "padding_idx")
OPTIONS = ("bidirectional", "left_pad", "padding_value")  # the last two only say how a batch was laid out
TRANSFORMER_NAME = "self_attn"  # part of the weights' names in LASER 3
WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class LaserEncoder(PretrainedModule):
    """The encoder of LASER 1 and 2: ``v(t_1, ..., t_n) = max_i [h_L(i) forwards; h_L(i) backwards]``.

    Embeddings of pieces, then `num_layers` bidirectional LSTM layers (Artetxe and Schwenk 2019, section 3.1). Calling
    the module gives sentence vectors; `hidden_states` gives every layer. Parameters are named as in the released
    checkpoints. Each direction of each layer runs by itself over unpacked rows, so that a GPU's host never waits for
    lengths. Neither ``torch.compile(fullgraph=True)`` nor ``torch.export`` with a free length takes an LSTM. The
    kernels of cuDNN, and of oneDNN in float32, have no second derivatives: where those are needed, call under
    ``torch.backends.cudnn.flags(enabled=False)`` or ``torch.backends.mkldnn.flags(enabled=False)``.

    Args:
        num_embeddings: How many pieces there are.
        embedding_dim: The size of a piece's embedding.
        hidden_size: The size of a state in each direction.
        num_layers: How many layers: 5 in the released encoders.
        padding_idx: The id that pads.
        dictionary: The ids of the pieces, where they are known.

    Shape:
        ids ``(batch, piece)`` to ``(batch, 2 * hidden_size)``.

    Raises:
        ValueError: Sizes or shapes that do not fit, ids outside the table, a dictionary of another size.
        TypeError: Ids that are no integers, a mask that is not bool, no dictionary.

    Example:
        >>> encoder = LaserEncoder(11, 4, 3, num_layers=2).eval()
        >>> ids = torch.tensor([[5, 7, 2], [6, 2, 1]])  # 2 ends a sentence, 1 pads
        >>> encoder(ids).shape, [tuple(states.shape) for states in encoder.hidden_states(ids)]
        (torch.Size([2, 6]), [(2, 3, 4), (2, 3, 6), (2, 3, 6)])

    Deviations: none in the numbers. A row without pieces gives zeros, where the released code has no answer.
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
            num_embeddings=num_embeddings, embedding_dim=embedding_dim, hidden_size=hidden_size, num_layers=num_layers
        )
        inside = is_count(padding_idx) and 0 <= padding_idx < num_embeddings
        require(inside, "padding_idx", f"lie in [0, {num_embeddings})", repr(padding_idx))
        if dictionary is not None:
            if not isinstance(dictionary, PieceDictionary):
                raise TypeError(must("dictionary", "be a PieceDictionary", class_name(dictionary)))
            require(len(dictionary) == num_embeddings, "dictionary", f"hold {num_embeddings} pieces", len(dictionary))
            rule = f"be the dictionary's {dictionary.padding_id}"
            require(padding_idx == dictionary.padding_id, "padding_idx", rule, padding_idx)
        super().__init__()
        self.dictionary = dictionary
        self.embed_tokens = nn.Embedding(num_embeddings, embedding_dim, padding_idx=padding_idx)
        self.lstm = _LayeredLSTM(embedding_dim, hidden_size, num_layers, bidirectional=True)

    @classmethod
    def from_checkpoint(cls, path: str | os.PathLike[str]) -> Self:
        """Open a released checkpoint, ``bilstm.93langs.2018-12-26.pt`` or ``laser2.pt``, in evaluation mode.

        Only tensors and plain data are read: code in the file is never run.

        Args:
            path: The file.

        Returns:
            The encoder and its dictionary.

        Raises:
            FileNotFoundError: No such file.
            ValueError: A file that holds code, another architecture (LASER 3 is a Transformer), missing or extra
                weights, a dictionary of another size.
        """
        path = check_file(path, where="See polyembed.vectors.fetch_laser")
        data = _load(path)
        params, state = _check_checkpoint(path, data)
        try:
            dictionary = PieceDictionary.from_ids(data["dictionary"])
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error
        count = params["num_embeddings"]
        require(len(dictionary) == count, str(path), f"have a dictionary of its {count} embeddings", len(dictionary))
        options = {name: params[name] for name in ("num_layers", "padding_idx")}
        with torch.device("meta"):  # no memory, no random numbers
            encoder = cls(count, params["embed_dim"], params["hidden_size"], dictionary=dictionary, **options)
        # copies: in the file two weights may share memory, or one repeat it
        copies = {name: value.to(torch.float32, copy=True) for name, value in state.items()}
        encoder.load_state_dict(copies, assign=True)
        return encoder.eval()

    @property
    def embedding_dim(self) -> int:
        """Give the size of a piece's embedding."""
        return self.embed_tokens.embedding_dim

    @property
    def hidden_size(self) -> int:
        """Give the size of a state in each direction."""
        return self.lstm.hidden_size

    @property
    def num_layers(self) -> int:
        """Count the LSTM's layers."""
        return self.lstm.num_layers

    @property
    def padding_idx(self) -> int:
        """Give the id that pads."""
        return int(self.embed_tokens.padding_idx)  # type: ignore[arg-type]

    def forward(
        self, token_ids: Int[Tensor, "batch piece"], mask: Bool[Tensor, "batch piece"] | None = None
    ) -> Float[Tensor, "batch dim"]:
        """Encode sentences.

        Args:
            token_ids: Ids of pieces, ``</s>`` last.
            mask: True = a piece; if None, whatever is not the padding.

        Returns:
            The maximum over time of the last layer, ``(batch, 2 * hidden_size)``; zeros for a row without pieces.
        """
        mask = self._mask(token_ids, mask)
        return masked_max(self.last_hidden_state(token_ids, mask), mask)

    def hidden_states(
        self, token_ids: Int[Tensor, "batch piece"], mask: Bool[Tensor, "batch piece"] | None = None
    ) -> list[Float[Tensor, "batch piece dim"]]:
        """Give the embeddings and the states of each layer, all from one pass.

        Args:
            token_ids: Ids of pieces.
            mask: As in `forward`.

        Returns:
            ``(batch, piece, embedding_dim)``, then ``(batch, piece, 2 * hidden_size)`` for each layer, forwards first;
            zeros at padding.
        """
        mask = self._mask(token_ids, mask)
        back = valid_first(mask).argsort(1)
        return [torch.where(mask[..., None], reorder(x, back), 0.0) for x in self._layers(token_ids, mask)]

    def last_hidden_state(
        self, token_ids: Int[Tensor, "batch piece"], mask: Bool[Tensor, "batch piece"] | None = None
    ) -> Float[Tensor, "batch piece dim"]:
        """Give the states of the last layer alone.

        Args:
            token_ids: Ids of pieces.
            mask: As in `forward`.

        Returns:
            ``(batch, piece, 2 * hidden_size)``; zeros at padding.
        """
        mask = self._mask(token_ids, mask)
        states = deque(self._layers(token_ids, mask), maxlen=1).pop()  # the other layers are let go on the way
        return torch.where(mask[..., None], reorder(states, valid_first(mask).argsort(1)), 0.0)

    def _mask(self, token_ids: Tensor, mask: Tensor | None) -> Tensor:
        check_dim("token_ids", token_ids, 2, "batch, piece")
        check_ids("token_ids", token_ids)
        check_mask(mask, token_ids.shape)
        return token_ids != self.padding_idx if mask is None else mask

    def _layers(self, token_ids: Tensor, mask: Tensor) -> Iterator[Tensor]:
        """Yield the embeddings and each layer's states, each row's pieces to the front."""
        ids = torch.where(mask, token_ids, self.padding_idx).gather(1, valid_first(mask))
        try:
            states = F.embedding(ids, self.embed_tokens.weight, self.padding_idx)
        except IndexError as error:
            raise ValueError(must("token_ids", f"lie in [0, {self.embed_tokens.num_embeddings})", "others")) from error
        yield states
        reverse = reversal(mask.sum(1), ids.shape[1])
        for layer in range(self.num_layers):
            if ids.numel():
                weights = (self.lstm.weights(layer), self.lstm.weights(layer, reverse=True))
                states = bidirectional(states, reverse, *weights)
            else:  # no kernel takes a batch of nothing, whose sum is 0
                states = states.sum().expand(*ids.shape, 2 * self.hidden_size)
            yield states

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        sizes = ("num_layers", "padding_idx", "dictionary")
        return {
            "num_embeddings": self.embed_tokens.num_embeddings,
            "embedding_dim": self.embedding_dim,
            "hidden_size": self.hidden_size,
            **{name: getattr(self, name) for name in sizes},
        }

    def __repr__(self) -> str:
        return repr_call(self, **self.get_config())


class LaserRelease(NamedTuple):
    """A public encoder and what cuts text into its pieces; unpack it into any LASER word encoder.

    Attributes:
        encoder: In evaluation mode.
        tokenizer: Over the encoder's dictionary.
    """

    encoder: LaserEncoder
    tokenizer: LaserTokenizer


def load_laser(
    version: Literal["laser1", "laser2"] = "laser2",
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    sha256: Mapping[str, str] | None = None,
    language: str = "en",
) -> LaserRelease:
    """Open a public LASER encoder with its tokenisation, fetched where the cache lacks it.

    Args:
        version: ``"laser1"`` or ``"laser2"``.
        cache_dir: As in `polyembed.vectors.fetch_laser`.
        sha256: As in `polyembed.vectors.fetch_laser`.
        language: A two-letter code, for Moses' rules.

    Returns:
        Encoder and tokeniser: ``LaserTop(*load_laser("laser2"))``.

    Raises:
        FileNotFoundError: A file is missing and cannot be fetched.
        ValueError: A damaged file.
    """
    files = fetch_laser(version, cache_dir=cache_dir, sha256=sha256)
    encoder = LaserEncoder.from_checkpoint(files.checkpoint)
    dictionary = encoder.dictionary
    assert dictionary is not None  # a checkpoint has one
    if version == "laser2":
        return LaserRelease(
            encoder, SentencePieceTokenizer(open_sentencepiece(files.pieces), dictionary, language=language)
        )
    merges, vocabulary = read_merges(files.pieces), read_pieces(files.vocabulary)
    return LaserRelease(encoder, FastBPETokenizer(merges, dictionary, vocabulary=vocabulary, language=language))


class _LayeredLSTM(nn.LSTM):
    """The parameters of an `nn.LSTM`, each direction of each layer laid out to run by itself."""

    def weights(self, layer: int, *, reverse: bool = False) -> list[Tensor]:
        """Give one direction's weights; by name, so that `torch.func.functional_call` reaches them."""
        return [getattr(self, f"{name}_l{layer}{'_reverse' if reverse else ''}") for name in WEIGHTS]

    def flatten_parameters(self) -> None:
        """Lay each direction's weights side by side, as cuDNN wants them; nothing happens off the GPU."""
        found = [getattr(self, name, None) for name in getattr(self, "_flat_weights_names", [])]
        weights = [x for x in found if isinstance(x, Tensor) and x.is_cuda]
        if not weights or len(weights) < len(found) or not torch._use_cudnn_rnn_flatten_weight():
            return
        cudnn: Any = torch.backends.cudnn
        apart = len({x.data_ptr() for x in weights}) == len(weights)
        if not apart or not all(cudnn.is_acceptable(x) for x in weights):
            return
        mode = cudnn.rnn.get_cudnn_mode(self.mode)
        with torch.cuda.device(weights[0].device), torch.no_grad():
            for layer in range(self.num_layers):
                size = 2 * self.hidden_size if layer else self.input_size
                for reverse in (False, True):
                    one = self.weights(layer, reverse=reverse)
                    torch._cudnn_rnn_flatten_weight(one, len(one), size, mode, self.hidden_size, 0, 1, True, False)


def _load(path: Path) -> dict[str, Any]:
    """Read a checkpoint as data."""
    try:
        data = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        _refuse_transformer(path)
        raise ValueError(
            must(str(path), "hold tensors and plain data only; nothing in it was run", str(error).splitlines()[0])
        ) from error
    except Exception as error:  # torch raises many kinds for a damaged file
        raise ValueError(must(str(path), "be a whole checkpoint", f"{class_name(error)}: {error}")) from error
    named = isinstance(data, dict) and isinstance(data.get("model"), dict)
    if named and any(TRANSFORMER_NAME in str(name) for name in data["model"]):
        _refuse_transformer(path)
    require(
        isinstance(data, dict) and all(name in data for name in PARTS),
        str(path),
        f"be a LASER 1 or 2 checkpoint, with {', '.join(PARTS)}",
        sorted(map(str, data)) if isinstance(data, dict) else class_name(data),
    )
    return dict(data)


def _refuse_transformer(path: Path) -> None:
    """Raise if the file names the weights of a Transformer; looks at the bytes, unpickles nothing."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(TRANSFORMER_NAME.encode()) >= 0:
                raise ValueError(must(str(path), "be a LASER 1 or 2 checkpoint (a BiLSTM)", "LASER 3 (a Transformer)"))


def _check_checkpoint(path: Path, data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Require the sizes of a BiLSTM, and exactly its weights."""
    name = str(path)
    params, state = data["params"], data["model"]
    require(isinstance(params, dict) and isinstance(state, dict), name, "hold its params and weights as tables", "none")
    params = {"embed_dim": 320, "hidden_size": 512, "num_layers": 1, "bidirectional": False, **params}  # as released
    foreign = sorted(set(map(str, params)) - {*SIZES, *OPTIONS})
    require(not foreign, name, f"have no params beside {', '.join((*SIZES, *OPTIONS))}", foreign)
    missing = [size for size in SIZES if size not in params]
    require(not missing, name, f"have the params {', '.join(SIZES)}", f"none of {missing}")
    check_positive(**{f"{name}: {size}": params[size] for size in SIZES[:-1]})
    require(params["bidirectional"] is True, name, "hold a bidirectional LSTM", "one direction")
    hidden = params["hidden_size"]
    shapes = {"embed_tokens.weight": (params["num_embeddings"], params["embed_dim"])}
    for layer in range(min(params["num_layers"], len(state))):  # a file promises no more layers than it has weights
        size = 2 * hidden if layer else params["embed_dim"]
        for end in ("", "_reverse"):
            four = [(4 * hidden, size), (4 * hidden, hidden), (4 * hidden,), (4 * hidden,)]
            shapes |= {f"lstm.{part}_l{layer}{end}": shape for part, shape in zip(WEIGHTS, four, strict=True)}
    lacks, extra = sorted(set(shapes) - set(state)), sorted(map(str, set(state) - set(shapes)))
    require(not lacks and not extra, name, "hold the weights of its LSTM", f"missing {lacks}, unexpected {extra}")
    for key, shape in shapes.items():
        value = state[key]
        sound = isinstance(value, Tensor) and value.is_floating_point() and tuple(value.shape) == shape
        sound = sound and value.layout == torch.strided and not value.is_meta
        got = tuple(value.shape) if isinstance(value, Tensor) else class_name(value)
        require(sound, f"{name}: {key}", f"be dense floating point of shape {shape}", got)
    return params, state
