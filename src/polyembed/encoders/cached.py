"""The vectors of a frozen contextual embedder, computed once and read in every epoch."""

import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate, pairwise, starmap
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from polyembed._batches import chunked, progress_bar
from polyembed._checks import (
    check_choice,
    check_file,
    check_positive,
    check_sentences,
    check_words,
    class_name,
    must,
    require,
    require_type,
)
from polyembed._views import evaluation_view
from polyembed.embeddings.embedder import WordEmbedder
from polyembed.encoders.contextual import ContextualEmbedder
from polyembed.encoders.fusion import LayerFusion, check_fusion
from polyembed.encoders.pooling import pool_words
from polyembed.encoders.pretrained import PretrainedWordEncoder
from polyembed.text.spelling import mask_of

INDEX_NAME, FEATURES_NAME = "index.json", "features.npy"
FORMAT_VERSION = 3


def cache_features(
    encoder: ContextualEmbedder,
    sentences: Iterable[Sequence[str]],
    folder: str | os.PathLike[str],
    *,
    layers: Sequence[int] | None = None,
    dtype: torch.dtype = torch.float16,
    batch_size: int = 32,
    progress: bool | None = None,
) -> "FeatureStore":
    """Run a frozen contextual embedder once over sentences, and write its word vectors to a folder.

    The folder appears in one step when everything is written. `CachedEmbedder` reads it.

    Args:
        encoder: The embedder. It runs in evaluation mode, on the device that it is on.
        sentences: Lists of words, after a tagger's `prepare`: training, development and test
            sentences together.
        folder: The folder, which must not exist.
        layers: The layers of a `PretrainedWordEncoder` to store, numbered as in `hidden_states`
            (0 = embeddings, -1 = the last). Each word's pieces are pooled as the encoder pools
            them. If None, the encoder's own vectors are stored.
        dtype: The dtype of the numbers on disk: float16 or float32.
        batch_size: The number of sentences, of similar length, that run at once.
        progress: Whether to show a progress bar; if None, only on a terminal.

    Returns:
        The store, which holds every sentence.

    Raises:
        FileExistsError: If the folder exists.
        ValueError: If the encoder lacks one of the layers, or a number is beyond the range of
            `dtype`.
        TypeError: If `layers` is given for an encoder without layers, or a sentence is a string.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
        >>> from polyembed import PretrainedWordEncoder
        >>> pieces = {"[UNK]": 0, "me": 1, "gus": 2, "##ta": 3}
        >>> rules = Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))
        >>> rules.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=rules, unk_token="[UNK]")
        >>> sizes = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
        >>> model = BertModel(BertConfig(vocab_size=4, num_hidden_layers=2, **sizes))
        >>> encoder = PretrainedWordEncoder(model, tokenizer)
        >>> with TemporaryDirectory() as folder:
        ...     sentences = [["me", "gusta"], ["me"]]
        ...     store = cache_features(encoder, sentences, f"{folder}/store", layers=[1, 2])
        ...     store.get(["me", "gusta"]).shape
        torch.Size([2, 2, 8])
    """
    check_positive(batch_size=batch_size)
    layers = _check_layers(encoder, layers)
    name = str(dtype).removeprefix("torch.")
    check_choice("dtype", name, ("float16", "float32"))
    path = Path(folder)
    if path.exists():
        raise FileExistsError(
            f"{path} exists: CachedEmbedder(encoder, folder) reads it; remove it to compute anew"
        )
    known = sorted(dict.fromkeys(map(tuple, check_sentences(sentences))), key=len)
    shape = (sum(map(len, known)), len(layers or [0]), encoder.embedding_dim)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".features-", dir=path.parent) as scratch:
        draft = Path(scratch, "store")
        draft.mkdir()
        index = {"format_version": FORMAT_VERSION, "layers": layers, "sentences": known}
        (draft / INDEX_NAME).write_text(json.dumps(index))
        rows = np.lib.format.open_memmap(draft / FEATURES_NAME, "w+", name, shape)
        batches = list(chunked(known, batch_size))
        start = 0
        for batch in progress_bar(batches, progress=progress, unit=" batches"):
            found = torch.cat(_compute(encoder, batch, layers)).to(dtype)
            finite = bool(found.isfinite().all())
            rule = f"have finite vectors in {dtype} (dtype=torch.float32 has the widest range)"
            require(finite, "encoder", rule, f"others for one of {[*map(list, batch[:3])]} ...")
            rows[start : start + len(found)] = found.numpy()
            start += len(found)
        rows.flush()
        draft.rename(path)
    return FeatureStore(path)


class FeatureStore:
    """The word vectors that `cache_features` wrote, memory-mapped; any number of threads may read.

    Args:
        folder: The folder of `cache_features`.

    Attributes:
        folder: The folder.
        layers: The numbers of the stored layers, None for the encoder's own vectors.
        places: The place of each sentence's words in `features`.
        features: All vectors, ``(word, layer, embedding_dim)``.

    Raises:
        FileNotFoundError: If the folder holds no store.
        ValueError: If the store has another format, or its files do not fit together.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).absolute()
        where = "cache_features writes such a folder"
        path = check_file(self.folder / INDEX_NAME, name="folder", where=where)
        try:
            index = json.loads(path.read_text())
            version = index["format_version"]
            require(
                version == FORMAT_VERSION, INDEX_NAME, f"have version {FORMAT_VERSION}", version
            )
            self.layers: list[int] | None = index["layers"]
            self.features = np.load(self.folder / FEATURES_NAME, "r")
            known = [tuple(words) for words in index["sentences"]]
            ends = [0, *accumulate(map(len, known))]
            self.places = dict(zip(known, starmap(slice, pairwise(ends)), strict=True))
            found = self.features.shape
            shape = (ends[-1], len(self.layers or [0]), found[-1])
            require(found == shape, FEATURES_NAME, f"have shape {shape}", found)
        except OSError:
            raise
        except Exception as error:  # np.load raises any kind
            rule = "hold intact features of this version (remove it to compute them anew)"
            raise ValueError(must(str(self.folder), rule, error)) from error

    def get(self, words: Sequence[str]) -> Float[Tensor, "word layer embedding_dim"] | None:
        """Return a copy of the vectors of one sentence's words; None if the store lacks it."""
        place = self.places.get(tuple(check_words(words)))
        return None if place is None else torch.from_numpy(self.features[place].copy())

    @cached_property
    def statistics(self) -> tuple[Tensor, Tensor]:
        """The mean and the standard deviation of every number over all words, ``(layer, dim)``.

        Words without pieces, which have zeros in all layers, do not count. A deviation below 1e-4
        of the layer's median deviation is rounding error and is replaced by 1. The first use reads
        the whole store.
        """
        total = torch.zeros(self.features.shape[1:], dtype=torch.float64)
        squares, count = total.clone(), 0
        size = max(1, (1 << 24) // max(1, self.features[:1].nbytes))
        for start in range(0, len(self.features), size):
            rows = torch.from_numpy(self.features[start : start + size].copy())
            rows = rows[(rows != 0).any(-1).any(-1)].double()
            total += rows.sum(0)
            squares += rows.square().sum(0)
            count += len(rows)
        mean = total / max(1, count)
        deviation = (squares / max(1, count) - mean.square()).clamp(min=0).sqrt()
        least = 1e-4 * deviation.median(-1, keepdim=True).values
        return mean, torch.where(deviation > least, deviation, 1.0)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.folder,)


class WordFeatures(NamedTuple):
    """The inputs of a `CachedEmbedder`: vectors of words, as they were computed.

    Attributes:
        features: ``(batch, word, layer, dim)``; zeros at padding.
        mask: True = a word, ``(batch, word)``.
    """

    features: Float[Tensor, "batch word layer dim"]
    mask: Bool[Tensor, "batch word"]


class CachedEmbedder(WordEmbedder):
    """A frozen contextual embedder that reads the vectors of known sentences from disk.

    For other sentences it runs its encoder. Training then costs only what the parts above the
    encoder cost, and `predict` takes any text. The hidden states of a language model have a few
    dimensions that are a thousand times larger than the rest, so vectors are normalised first:

    - ``"standardize"``: each number becomes ``(x - mean) / deviation``, over the words of the
      store. The mean and the deviation are constants of the module and are saved with it. To
      transfer to another language, build the module from a store of training sentences only, then
      `attach` a store of all sentences: statistics over several languages show which language a
      vector is from, and a classifier may rely on this.
    - ``"rms"``: each vector becomes ``x / sqrt(mean(x^2) + eps)``, where eps is the dtype's
      smallest step from 1 (1.2e-7 for float32). This needs no statistics.

    A word without pieces keeps its zeros.

    Args:
        encoder: The embedder. It is frozen here, and always runs in evaluation mode.
        store: What `cache_features` returned for this encoder, or its folder. If None, the encoder
            runs for every sentence. A saved model is opened without a store; `attach` it again to
            train on.
        layers: The layers that are stored, as in `cache_features`; by default the store's.
        fusion: How layers become one vector: `LastLayer`, `LayerAverage`, `ScalarMix`, `DLFA`. It
            trains. If None, the vector is the last layer, whatever the encoder's own fusion is.
            Layers are numbered as in the encoder; the fusion's layers must be stored.
        normalize: ``"standardize"``, ``"rms"``, or None for unchanged vectors. A new module without
            a store has no statistics to standardise by, and does not change the vectors.

    Attributes:
        mean: The mean of each number, ``(layer, dim)``; zeros if not standardising.
        deviation: The deviation of each number, ``(layer, dim)``; ones if not standardising.

    Shape:
        `WordFeatures` ``(batch, word, layer, dim)`` to ``(batch, word, embedding_dim)``; zeros at
        padding.

    Raises:
        ValueError: If the store has vectors of another size or other layers, is empty while
            standardising, or lacks a layer that the fusion reads, or `normalize` is unknown.
        TypeError: If the encoder is not a contextual embedder, or the fusion not a `LayerFusion`.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
        >>> from polyembed import PretrainedWordEncoder
        >>> pieces = {"[UNK]": 0, "me": 1, "gus": 2, "##ta": 3}
        >>> rules = Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))
        >>> rules.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=rules, unk_token="[UNK]")
        >>> sizes = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
        >>> model = BertModel(BertConfig(vocab_size=4, num_hidden_layers=2, **sizes))
        >>> encoder = PretrainedWordEncoder(model, tokenizer)
        >>> with TemporaryDirectory() as folder:
        ...     store = cache_features(encoder, [["me", "gusta"], ["me"]], f"{folder}/store")
        ...     embedder = CachedEmbedder(encoder, store)
        ...     inputs, mask = embedder.encode([["me", "gusta"], ["gusta"]])  # the last is computed
        >>> embedder(inputs).shape
        torch.Size([2, 2, 8])

    Deviations: a fusion sees vectors of words, where `PretrainedWordEncoder` fuses vectors of
    pieces; the two are equal for pooling by one piece (``"first"``, ``"last"``) and fusions without
    statistics, and without normalising.
    """

    file_arguments: ClassVar[frozenset[str]] = frozenset({"store"})  # configurations name no store

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
        if isinstance(store, str | os.PathLike):
            store = FeatureStore(store)
        if layers is None and store is not None:
            layers = store.layers
        if normalize is not None:
            check_choice("normalize", normalize, ("standardize", "rms"))
        self.layers = _check_layers(encoder, layers)
        self.encoder = encoder
        self.fusion = check_fusion(fusion)
        self.normalize = normalize
        numbers = self.layers or [0]
        self._count = getattr(encoder, "num_hidden_states", 1) if self.layers else 1
        chosen = self.fusion.chosen(range(self._count))
        lacking = sorted(set(chosen) - set(numbers))
        rule = f"hold the layers that {class_name(self.fusion)} reads"
        require(not lacking, "layers", rule, f"{numbers} without {lacking}")
        self._chosen = {layer: numbers.index(layer) for layer in chosen}
        self._shape = len(numbers), encoder.embedding_dim
        self.attach(store)
        mean, deviation = torch.zeros(self._shape), torch.ones(self._shape)
        if store is not None and normalize == "standardize":
            require(len(store.features) > 0, "store", "hold words to standardise by", "none")
            mean, deviation = (value.float() for value in store.statistics)
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)
        encoder.requires_grad_(False)  # last, so that an error leaves it as it was

    @property
    def embedding_dim(self) -> int:
        """The size of a word's vector."""
        return self.encoder.embedding_dim

    def attach(self, store: FeatureStore | str | os.PathLike[str] | None) -> Self:
        """Read from this store from now on; the mean and the deviation stay.

        Args:
            store: A store of this encoder, or its folder; None to read none.

        Returns:
            The embedder itself.

        Raises:
            ValueError: If the store is of other layers or of vectors of another size.
        """
        if isinstance(store, str | os.PathLike):
            store = FeatureStore(store)
        if store is not None:
            stored = store.layers
            require(stored == self.layers, "store", f"hold the layers {self.layers}", stored)
            found = store.features.shape[1:]
            require(found == self._shape, "store", f"have {self._shape} as (layer, dim)", found)
        self.store = store
        return self

    def encode(
        self, sentences: Sequence[Sequence[str]]
    ) -> tuple[WordFeatures, Bool[Tensor, "batch word"]]:
        """Read the vectors of words; for sentences that the store lacks, run the encoder.

        Args:
            sentences: Lists of words.

        Returns:
            The vectors, without a graph, and the mask of words, on the CPU.

        Raises:
            TypeError: If a sentence is a string, or a word is not one.
        """
        sentences = check_sentences(sentences)
        stored = [None if self.store is None else self.store.get(words) for words in sentences]
        missing = [words for words, row in zip(sentences, stored, strict=True) if row is None]
        computed = iter(_compute(self.encoder, missing, self.layers))
        dtype = self.mean.dtype
        rows = [(next(computed) if row is None else row).to(dtype) for row in stored]
        # the additional row gives the shape for an empty list of sentences
        features = pad_sequence([*rows, torch.zeros(0, *self._shape)], batch_first=True)[:-1]
        mask = mask_of(sentences)
        return WordFeatures(features, mask), mask

    def forward(self, inputs: WordFeatures) -> Float[Tensor, "batch word embedding_dim"]:
        """Normalise and fuse the stored layers that `encode` returned; zeros at padding."""
        shape = tuple(inputs.features.shape[2:])
        require(shape == self._shape, "inputs", f"have {self._shape} as (layer, dim)", shape)
        found = {
            layer: self._normalized(inputs.features[:, :, place].to(self.mean.dtype), place)
            for layer, place in self._chosen.items()
        }
        unread = next(iter(found.values()))  # in the place of the layers that the fusion skips
        states = [found.get(layer, unread) for layer in range(self._count)]
        fused: Tensor = self.fusion(states, inputs.mask)
        return fused

    def _normalized(self, state: Tensor, place: int) -> Tensor:
        if self.normalize == "rms":
            return F.rms_norm(state, state.shape[-1:])
        has_pieces = (state != 0).any(-1, keepdim=True)
        return torch.where(has_pieces, (state - self.mean[place]) / self.deviation[place], 0.0)


def _check_layers(encoder: ContextualEmbedder, layers: Sequence[int] | None) -> list[int] | None:
    """Return the numbers of layers, counted from the embeddings; None for the encoder's vectors."""
    require_type(
        isinstance(encoder, ContextualEmbedder), "encoder", "be a contextual embedder", encoder
    )
    if layers is None:
        return None
    if not isinstance(encoder, PretrainedWordEncoder):
        rule = "be None: only a PretrainedWordEncoder has layers"
        raise TypeError(must("layers", rule, class_name(encoder)))
    count = encoder.num_hidden_states
    good = len(layers) > 0 and all(-count <= layer < count for layer in layers)
    require(good, "layers", f"be among the {count} hidden states (0 to {count - 1})", list(layers))
    return [int(layer) % count for layer in layers]


@torch.no_grad()
def _compute(
    encoder: ContextualEmbedder, sentences: Sequence[Sequence[str]], layers: list[int] | None
) -> list[Tensor]:
    """Return the vectors of each sentence, ``(word, layer, embedding_dim)`` on the CPU."""
    if not sentences:
        return []
    encoder = evaluation_view(encoder)
    device = next((value.device for value in encoder.parameters()), torch.device("cpu"))
    pieces = encoder.encode(sentences)[0].to(device)
    if layers is None:
        found = encoder(pieces)[:, :, None]
    else:
        assert isinstance(encoder, PretrainedWordEncoder)
        states = encoder.hidden_states(pieces, all_layers=True)
        index, count, pooling = pieces.word_index, pieces.count_words(), encoder.pooling
        found = torch.stack(
            [pool_words(states[i], index, count, pooling=pooling) for i in layers], 2
        )
    rows = found.cpu()
    return [rows[i, : len(words)] for i, words in enumerate(sentences)]
