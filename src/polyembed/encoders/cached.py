"""A frozen contextual embedder whose vectors are read from disk where available."""

import os
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from polyembed._checks import check_sentences, class_name, must, require
from polyembed._views import evaluation_view
from polyembed.embeddings.embedder import WordEmbedder
from polyembed.encoders._identity import encoder_checksum
from polyembed.encoders.contextual import ContextualEmbedder
from polyembed.encoders.feature_store import FeatureStore, check_layers, compute_features
from polyembed.encoders.fusion import LayerFusion, check_fusion


class WordFeatures(NamedTuple):
    """The inputs of a `CachedEmbedder`: vectors of words, as they were computed.

    Attributes:
        features: ``(batch, word, layer, dim)``; zeros at padding.
        mask: True = a word, ``(batch, word)``.
    """

    features: Float[Tensor, "batch word layer dim"]
    mask: Bool[Tensor, "batch word"]


class CachedEmbedder(WordEmbedder):
    """A frozen contextual embedder that reads its vectors from a `FeatureStore`, and runs for other
    sentences.

    Training then costs only what the parts above the encoder cost, and `predict` takes any text.
    Hidden states of a language model are large, and a few of their dimensions are a thousand times
    larger than the rest, so vectors are normalised first:

    - ``"standardize"``: each number, ``(x - mean) / deviation`` over the words of the store. The
      two are constants of the module, saved with it. To transfer to another language, build the
      module from a store of training sentences only, then `attach` a store of all: statistics over
      several languages show which language a vector is from, and a classifier may rely on it.
    - ``"rms"``: each vector, ``x / sqrt(mean(x^2) + eps)``, where eps is the dtype's smallest step
      from 1 (1.2e-7 for float32). It has no statistics.

    A word without pieces keeps its zeros.

    Args:
        encoder: The embedder; frozen here, and always run in evaluation mode.
        store: Its features, or their folder (`cache_features`). If None, the encoder runs for every
            sentence. Saved models are loaded without a store; `attach` it again to continue
            training.
        layers: As `layers` of `cache_features`. A store knows its own.
        fusion: How the stored layers become one vector: `LastLayer`, `LayerAverage`, `ScalarMix`,
            `DLFA`. It counts the stored layers alone: 0 is the first one stored. It trains.
        normalize: ``"standardize"``, ``"rms"``, or None for unchanged vectors. A new module without
            a store has no statistics to standardise by, and does not change the vectors.

    Attributes:
        mean: ``(layer, dim)``; zeros if not standardising.
        deviation: ``(layer, dim)``; ones if not standardising.

    Shape:
        `WordFeatures` ``(batch, word, layer, dim)`` to ``(batch, word, embedding_dim)``; zeros at
        padding.

    Raises:
        ValueError: A store of another encoder, or an empty one when standardising; other layers
            than the store's; another `normalize`.
        TypeError: An embedder that is not contextual, or another fusion.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
        >>> from polyembed import PretrainedWordEncoder
        >>> rules = Tokenizer(models.WordPiece({"[UNK]": 0, "me": 1, "gus": 2, "##ta": 3}, unk_token="[UNK]"))
        >>> rules.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
        >>> model = BertModel(BertConfig(vocab_size=4, **sizes))
        >>> encoder = PretrainedWordEncoder(model, PreTrainedTokenizerFast(tokenizer_object=rules, unk_token="[UNK]"))
        >>> from polyembed.encoders import cache_features
        >>> with TemporaryDirectory() as folder:
        ...     embedder = CachedEmbedder(encoder, cache_features(encoder, [["me", "gusta"], ["me"]], folder))
        ...     inputs, mask = embedder.encode([["me", "gusta"], ["gusta"]])  # the last is computed
        >>> embedder(inputs).shape
        torch.Size([2, 2, 8])

    Deviations: a fusion sees vectors of words, where `PretrainedWordEncoder` fuses vectors of
    pieces; the two are equal for pooling by one piece (``"first"``, ``"last"``) and fusions without
    statistics, and without normalising.
    """

    file_arguments: ClassVar[frozenset[str]] = frozenset(
        {"store"}
    )  # so no configuration can name one

    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        encoder: ContextualEmbedder,
        store: FeatureStore | str | os.PathLike[str] | None = None,
        *,
        layers: Sequence[int] | None = None,
        fusion: LayerFusion | None = None,
        normalize: Literal["standardize", "rms"] | None = "standardize",
    ) -> None:
        super().__init__()
        store = _opened(store)
        layers = store.layers if layers is None and store is not None else layers
        check_layers(encoder, layers)
        rule = "be 'standardize', 'rms' or None"
        require(normalize in ("standardize", "rms", None), "normalize", rule, normalize)
        self.encoder = encoder.requires_grad_(False)
        self.layers = None if layers is None else list(layers)
        self.fusion = check_fusion(fusion)
        self.normalize = normalize
        self.store: FeatureStore | None = None
        mean, deviation = torch.zeros(self._shape), torch.ones(self._shape)
        if store is not None:
            self.attach(store)
            if normalize == "standardize":
                require(len(store) > 0, "store", "hold sentences to standardise by", "none")
                mean, deviation = (value.float() for value in store.statistics())
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)
        self.train(self.training)

    @property
    def embedding_dim(self) -> int:
        """The size of a word's vector."""
        return self.encoder.embedding_dim

    @property
    def _shape(self) -> tuple[int, int]:
        return len(self.layers or [0]), self.embedding_dim

    def attach(self, store: FeatureStore | str | os.PathLike[str] | None) -> Self:
        """Read from this store from now on; the mean and the deviation stay.

        Args:
            store: Features of this encoder, or their folder; None to read none.

        Returns:
            The embedder itself.

        Raises:
            ValueError: A store of another encoder or of other layers.
        """
        store = _opened(store)
        if store is not None:
            require(
                store.layers == self.layers, "store", f"hold the layers {self.layers}", store.layers
            )
            same = store.encoder_checksum == encoder_checksum(self.encoder)
            require(
                same,
                "store",
                "be of this encoder (cache_features makes it)",
                f"{store!r} of another one",
            )
        self.store = store
        return self

    def encode(
        self, sentences: Sequence[Sequence[str]]
    ) -> tuple[WordFeatures, Bool[Tensor, "batch word"]]:
        """Read the vectors of words; run the encoder, without a graph, for sentences that the store
        lacks.

        Args:
            sentences: Lists of words.

        Returns:
            The vectors and the mask of words, on the CPU.

        Raises:
            TypeError: A string instead of a list of words, or words that are not strings.
            ValueError: A store whose numbers were changed on disk.
        """
        sentences = check_sentences(sentences)
        found = (
            {}
            if self.store is None
            else {i: self.store.get(words) for i, words in enumerate(sentences)}
        )
        known = {i: rows for i, rows in found.items() if rows is not None}
        missing = [i for i in range(len(sentences)) if i not in known]
        if missing:
            view: ContextualEmbedder = evaluation_view(
                self.encoder
            )  # the caller may have changed its mode
            computed = compute_features(view, [sentences[i] for i in missing], self.layers)
            known.update(zip(missing, computed, strict=True))
        width = max(map(len, sentences), default=0)
        dtype = torch.float32 if missing or self.store is None else self.store.dtype
        features = torch.zeros(len(sentences), width, *self._shape, dtype=dtype)
        for i, rows in known.items():
            features[i, : len(rows)] = rows
        lengths = torch.tensor([len(words) for words in sentences], dtype=torch.int64)
        mask = torch.arange(width) < lengths[:, None]
        return WordFeatures(features, mask), mask

    def forward(self, inputs: WordFeatures) -> Float[Tensor, "batch word embedding_dim"]:
        """Normalise and fuse stored layers.

        Args:
            inputs: What `encode` returns.

        Returns:
            ``(batch, word, embedding_dim)``; zeros at padding.
        """
        if not isinstance(inputs, WordFeatures):
            raise TypeError(
                must("inputs", "be WordFeatures, as encode makes them", class_name(inputs))
            )
        shape = tuple(inputs.features.shape[2:])
        require(shape == self._shape, "inputs", f"have {self._shape} as (layer, dim)", shape)
        states = list(inputs.features.unbind(2))
        for layer in set(self.fusion.chosen(range(len(states)))):
            states[layer] = self._normalized(states[layer].to(self.mean.dtype), layer)
        fused: Tensor = self.fusion(states, inputs.mask)
        return fused

    def _normalized(self, state: Tensor, layer: int) -> Tensor:
        if self.normalize == "rms":
            return F.rms_norm(state, state.shape[-1:])
        has_pieces = (state != 0).any(-1, keepdim=True)
        return torch.where(has_pieces, (state - self.mean[layer]) / self.deviation[layer], 0.0)

    def train(self, mode: bool = True) -> Self:
        """Switch to training; the encoder stays in evaluation mode."""
        super().train(mode)
        self.encoder.eval()
        return self

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments without the store."""
        names = ("encoder", "layers", "fusion", "normalize")
        return {name: getattr(self, name) for name in names}


def _opened(store: Any) -> FeatureStore | None:
    """Return a store, opened if it is a folder."""
    store = FeatureStore(store) if isinstance(store, str | os.PathLike) else store
    if not (store is None or isinstance(store, FeatureStore)):
        raise TypeError(must("store", "be a FeatureStore or its folder", class_name(store)))
    return store
