"""Labels for whole texts and for pairs of texts."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from polyembed._checks import (
    check_choice,
    check_dim,
    check_ids,
    check_mask,
    check_positive,
    check_probability,
    class_name,
    must,
    require,
)
from polyembed._pretrained import repr_call
from polyembed.encoders.pooling import SEQUENCE_POOLINGS, SequencePooling, pool_sequence
from polyembed.metrics import MetricName
from polyembed.tagging.losses import CrossEntropyLoss, check_criterion
from polyembed.tagging.text_model import check_names, to_device
from polyembed.tagging.word_reader import WordReader, feature_size
from polyembed.text.lexicon import Lexicon
from polyembed.text.pairs import PairedPieces, check_pairs
from polyembed.text.pieces import Pieces, check_words


@runtime_checkable
class Labelled(Protocol):
    """A text with a label."""

    @property
    def words(self) -> Sequence[str]:
        """The words."""
        ...

    @property
    def label(self) -> str | None:
        """The label."""
        ...


@runtime_checkable
class LabelledPair(Protocol):
    """Two texts with one label: a premise and a hypothesis, a sentence and its paraphrase."""

    @property
    def first(self) -> Sequence[str]:
        """The words of the first text."""
        ...

    @property
    def second(self) -> Sequence[str]:
        """The words of the second text."""
        ...

    @property
    def label(self) -> str | None:
        """The label."""
        ...


class TextClassifier(WordReader):
    """A label for each text: ``softmax(W dropout(x) + b)`` of a vector ``x`` of the text.

    With `hidden_size`, ``x`` first goes through ``tanh(W' dropout(x) + b')``. Calling a classifier gives the mean loss
    to train on; `predict` takes raw words. Members: `SequenceClassifier`, `PairClassifier`.
    """

    default_metric: ClassVar[MetricName] = "accuracy"

    def __init__(
        self,
        embedder: nn.Module,
        labels: Sequence[str],
        *,
        lexicon: Lexicon | None,
        encoder: nn.Module | None,
        pooling: SequencePooling,
        hidden_size: int | None,
        dropout: float,
        criterion: nn.Module | None,
        num_vectors: int = 1,
    ) -> None:
        labels = check_names("labels", labels, "label")
        check_choice("pooling", pooling, SEQUENCE_POOLINGS)
        check_positive(hidden_size=1 if hidden_size is None else hidden_size)
        check_probability(dropout=dropout)
        check_criterion(criterion, len(labels))
        size = num_vectors * feature_size(embedder, encoder)
        super().__init__(embedder, lexicon=lexicon, encoder=encoder)
        if pooling == "cls" and not self.reads_pieces:
            raise ValueError(must("pooling", "be 'mean' or 'max' over the vectors of words", "'cls'"))
        self.labels = labels
        self.pooling = pooling
        self.dropout = nn.Dropout(dropout)
        self.hidden = None if hidden_size is None else nn.Linear(size, hidden_size)
        self.linear = nn.Linear(size if hidden_size is None else hidden_size, len(labels))
        self.criterion = CrossEntropyLoss() if criterion is None else criterion
        self._label_ids = {label: i for i, label in enumerate(labels)}

    @property
    def device(self) -> torch.device:
        """Tell where inputs must be."""
        return self.linear.weight.device

    @property
    def reads_pieces(self) -> bool:
        """Whether texts are pooled over pieces (an encoder of transformers with nothing above), not over words."""
        return self.encoder is None and hasattr(self.embedder, "piece_vectors")

    @abstractmethod
    def features(self, inputs: Any, mask: Tensor | None = None) -> Float[Tensor, "batch dim"]:
        """Compute the texts' vectors."""

    @abstractmethod
    def encode(self, texts: Sequence[Any]) -> tuple[Any, Tensor | None]:
        """Turn words into what the other methods call `inputs`, and a mask of words where one is needed."""

    def forward(
        self, inputs: Any, *, labels: Int[Tensor, " batch"], mask: Bool[Tensor, "*batch word"] | None = None
    ) -> Float[Tensor, ""]:
        """Compute the mean loss.

        Args:
            inputs: What `encode` gives.
            labels: Label ids (`encode_labels`); -100 does not count.
            mask: True = a word; None = all are.

        Returns:
            The criterion's mean loss in nats.
        """
        check_ids("labels", labels)
        loss: Tensor = self.criterion(self.logits(inputs, mask), labels)
        return loss

    def logits(self, inputs: Any, mask: Bool[Tensor, "*batch word"] | None = None) -> Float[Tensor, "batch label"]:
        """Score each label.

        Args:
            inputs: What `encode` gives.
            mask: True = a word; None = all are.

        Returns:
            ``(batch, label)``.
        """
        x = self.dropout(self.features(inputs, mask))
        if self.hidden is not None:
            x = self.dropout(self.hidden(x).tanh())
        scores: Tensor = self.linear(x)
        return scores

    def probabilities(
        self, inputs: Any, mask: Bool[Tensor, "*batch word"] | None = None
    ) -> Float[Tensor, "batch label"]:
        """Compute the probability of each label.

        Args:
            inputs: What `encode` gives.
            mask: True = a word; None = all are.

        Returns:
            ``(batch, label)``, in at least float32.
        """
        logits = self.logits(inputs, mask)
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(-1)

    def decode(self, inputs: Any, mask: Bool[Tensor, "*batch word"] | None = None) -> Int[Tensor, " batch"]:
        """Find the best labels.

        Args:
            inputs: What `encode` gives.
            mask: True = a word; None = all are.

        Returns:
            Label ids.
        """
        return self.logits(inputs, mask).argmax(-1)

    def encode_labels(self, labels: Sequence[str | None]) -> Int[Tensor, " batch"]:
        """Turn label names into ids.

        Args:
            labels: One name a text.

        Returns:
            ``(batch)`` int64.

        Raises:
            ValueError: A name outside the label set.
            TypeError: One string in the place of several names.
        """
        if isinstance(labels, str):
            raise TypeError(must("labels", "be a sequence of label names", f"the string {labels!r}"))
        for row, label in enumerate(labels):
            known = isinstance(label, str) and label in self._label_ids
            require(known, f"labels[{row}]", f"be one of {', '.join(map(repr, self.labels))}", repr(label))
        return torch.tensor([self._label_ids[str(label)] for label in labels], dtype=torch.int64)

    def collate(self, items: Sequence[Any]) -> dict[str, Any]:
        """Make a training batch.

        Args:
            items: Labelled texts.

        Returns:
            ``inputs``, ``labels`` and ``mask``: the arguments of `forward`.
        """
        inputs, mask = self.encode([self.text_of(item) for item in items])
        return {"inputs": inputs, "labels": self.encode_labels([item.label for item in items]), "mask": mask}

    def _predict_batch(self, texts: Mapping[int, Any]) -> list[str]:
        inputs, mask = self.encode(list(texts.values()))
        logits = self.logits(to_device(inputs, self.device), to_device(mask, self.device))
        for i, sound in zip(texts, logits.isfinite().any(-1).tolist(), strict=True):
            require(sound, f"texts[{i}]", "have a finite score for a label", "none")
        return [self.labels[label] for label in logits.argmax(-1).tolist()]

    def labels_of(self, item: Any) -> list[str]:
        """Give a text's label.

        Args:
            item: An object with a ``label``.

        Returns:
            A list of it.

        Raises:
            TypeError: A label that is no string.
        """
        if not isinstance(item.label, str):
            raise TypeError(must("a label", "be a string", repr(item.label)))
        return [item.label]

    def check_items(self, items: Sequence[Any]) -> None:
        """Raise for labels that cannot be trained on.

        Args:
            items: Objects with a ``label``.

        Raises:
            ValueError: A name outside the label set.
        """
        self.encode_labels([item.label for item in items])

    def signature(self) -> dict[str, Any]:
        """Say in plain values what a checkpoint must agree on, besides shapes.

        Returns:
            The labels, a mark of the lexicon, the pooling and the criterion.
        """
        named = {"labels": list(self.labels), "lexicon": self._lexicon_mark()}
        return {**named, "pooling": self.pooling, "criterion": repr(self.criterion)}

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        self._vocabularies()  # the embedder catches up with a lexicon that somebody else has extended
        return {
            "embedder": self.embedder,
            "labels": list(self.labels),
            "lexicon": self.lexicon,
            "encoder": self.encoder,
            "pooling": self.pooling,
            "hidden_size": None if self.hidden is None else self.hidden.out_features,
            "dropout": self.dropout.p,
            "criterion": self.criterion,
        }

    def __repr__(self) -> str:
        return repr_call(self, **self.get_config())

    def _pool_words(self, inputs: Tensor | Pieces, mask: Tensor | None) -> Tensor:
        """Give the vector of each text from those of its words."""
        return pool_sequence(self.word_features(inputs, mask), mask, pooling=self.pooling)

    def _pool_pieces(self, pieces: Pieces, token_types: Tensor | None = None) -> Tensor:
        """Give the vector of each row from those of its pieces, special ones included."""
        vectors = self.embedder.piece_vectors(pieces, token_types)  # type: ignore[operator]
        return pool_sequence(vectors, pieces.piece_mask, pooling=self.pooling)


class SequenceClassifier(TextClassifier):
    """A label for each text, as its sentiment: ``softmax(W dropout(pool(vectors)) + b)``.

    Over an encoder of transformers the vectors are those of the pieces, ``[CLS]`` and its kin included; over a word
    embedder, another word encoder, or with a sequence encoder above, those of the words. Calling the classifier gives
    the mean loss to train on; `predict` takes raw words.

    Args:
        embedder: A `PretrainedWordEncoder`, another word encoder (`Pieces`), or a word embedder (ids).
        labels: The label set, in the order of its ids.
        lexicon: The word embedder's lexicon; None for a word encoder.
        encoder: A sequence encoder over the vectors of words; none if None.
        pooling: ``"cls"``: the first piece of an encoder of transformers; ``"mean"`` or ``"max"`` over all vectors.
        hidden_size: Of a layer ``tanh(W' dropout(x) + b')`` before the last; none if None.
        dropout: Before each linear map, in training.
        criterion: The loss of logits and labels; `CrossEntropyLoss` if None.

    Shape:
        ids ``(batch, word)``, mask ``(batch, word)``, labels ``(batch)``; the loss is a scalar.

    Raises:
        ValueError: Parts whose sizes do not fit, a label outside the label set, ``"cls"`` where there is none.
        TypeError: A mask that is not bool, or no lexicon where one is needed.

    Example:
        >>> lexicon = Lexicon(["me", "gusta", "that", "song"])
        >>> model = SequenceClassifier(nn.Embedding(6, 8), ["bad", "good"], lexicon=lexicon, pooling="mean")
        >>> ids, mask = lexicon.encode([["me", "gusta"], ["song"]])
        >>> loss = model(ids, labels=model.encode_labels(["good", "bad"]), mask=mask)
        >>> len(model.predict([["that", "canción"], []]))
        2

    Deviations: 2503.07990 has a linear map over ``[CLS]`` of a frozen mBERT, by transformers' head, which reads it
    through BERT's pretrained pooler (a tanh layer); here it is read as it is, and `hidden_size` adds such a layer, not
    pretrained. An empty text over words has a vector of zeros.
    """

    def __init__(
        self,
        embedder: nn.Module,
        labels: Sequence[str],
        *,
        lexicon: Lexicon | None = None,
        encoder: nn.Module | None = None,
        pooling: SequencePooling = "cls",
        hidden_size: int | None = None,
        dropout: float = 0.1,
        criterion: nn.Module | None = None,
    ) -> None:
        super().__init__(
            embedder,
            labels,
            lexicon=lexicon,
            encoder=encoder,
            pooling=pooling,
            hidden_size=hidden_size,
            dropout=dropout,
            criterion=criterion,
        )

    def features(
        self, inputs: Int[Tensor, "batch word"] | Pieces, mask: Bool[Tensor, "batch word"] | None = None
    ) -> Float[Tensor, "batch dim"]:
        """Compute the texts' vectors.

        Args:
            inputs: A lexicon's ids, or `Pieces`.
            mask: True = a word; None = all are.

        Returns:
            ``(batch, dim)``.
        """
        if self.reads_pieces and isinstance(inputs, Pieces):
            return self._pool_pieces(inputs)
        return self._pool_words(inputs, mask)

    def encode(self, texts: Sequence[Sequence[str]]) -> tuple[Tensor | Pieces, Tensor]:
        """Turn words into the embedder's inputs.

        Args:
            texts: Lists of words.

        Returns:
            Ids or `Pieces`, and the mask ``(batch, word)``.
        """
        return self.read(self._check_texts(texts))

    def _check_texts(self, texts: Sequence[Any], start: int = 0) -> list[Any]:
        return [*check_words(texts, name="texts", start=start)]

    def text_of(self, item: Labelled) -> Sequence[str]:
        """Give a text's words.

        Args:
            item: An object with ``words`` and ``label``.

        Returns:
            The words.
        """
        return item.words


class PairClassifier(TextClassifier):
    """A label for each pair of texts, as entailment (XNLI) or paraphrase (PAWS-X).

    An encoder of transformers reads both in one row, with its tokenizer's special pieces and token types, and the row
    is pooled: ``softmax(W dropout(pool([CLS] u [SEP] v [SEP])) + b)``. Over words (a word embedder, another word
    encoder, or with a sequence encoder above) each text is read by itself, and the vectors ``u`` and ``v`` become
    ``[u, v, |u - v|, u * v]`` (Conneau et al. 2017).

    Args:
        embedder: A `PretrainedWordEncoder`, another word encoder (`Pieces`), or a word embedder (ids).
        labels: The label set, in the order of its ids.
        lexicon: The word embedder's lexicon; None for a word encoder.
        encoder: A sequence encoder over the vectors of words; none if None.
        pooling: ``"cls"``: the first piece of an encoder of transformers; ``"mean"`` or ``"max"`` over all vectors.
        hidden_size: Of a layer ``tanh(W' dropout(x) + b')`` before the last; none if None.
        dropout: Before each linear map, in training.
        criterion: The loss of logits and labels; `CrossEntropyLoss` if None.

    Shape:
        `PairedPieces` ``(batch, piece)``, or ids and mask ``(batch, 2, word)``; labels ``(batch)``; the loss is a
        scalar.

    Raises:
        ValueError: Parts whose sizes do not fit, a label outside the label set, ``"cls"`` where there is none.
        TypeError: A tokenizer that takes no pairs, a mask that is not bool, or no lexicon where one is needed.

    Example:
        >>> lexicon = Lexicon(["me", "gusta", "that", "song"])
        >>> model = PairClassifier(nn.Embedding(6, 8), ["no", "yes"], lexicon=lexicon, pooling="mean")
        >>> len(model.predict([(["me", "gusta"], ["that", "song"]), (["canción"], [])]))
        2

    Deviations: Conneau et al. have a hidden layer with ReLU over the four vectors; here there is none unless
    `hidden_size` adds one, with tanh.
    """

    def __init__(
        self,
        embedder: nn.Module,
        labels: Sequence[str],
        *,
        lexicon: Lexicon | None = None,
        encoder: nn.Module | None = None,
        pooling: SequencePooling = "cls",
        hidden_size: int | None = None,
        dropout: float = 0.1,
        criterion: nn.Module | None = None,
    ) -> None:
        joint = encoder is None and hasattr(embedder, "encode_pairs")
        super().__init__(
            embedder,
            labels,
            lexicon=lexicon,
            encoder=encoder,
            pooling=pooling,
            hidden_size=hidden_size,
            dropout=dropout,
            criterion=criterion,
            num_vectors=1 if joint else 4,
        )

    def features(
        self,
        inputs: Int[Tensor, "batch 2 word"] | Pieces | PairedPieces,
        mask: Bool[Tensor, "batch 2 word"] | None = None,
    ) -> Float[Tensor, "batch dim"]:
        """Compute the pairs' vectors.

        Args:
            inputs: `PairedPieces`; a lexicon's ids, or `Pieces`, of both texts, ``(batch, 2, ...)``.
            mask: True = a word; None = all are; not read with `PairedPieces`.

        Returns:
            ``(batch, dim)``.
        """
        if self.reads_pieces:
            if not isinstance(inputs, PairedPieces):
                raise TypeError(must("inputs", "be PairedPieces (what encode gives)", class_name(inputs)))
            return self._pool_pieces(*inputs)
        ids = inputs.piece_ids if isinstance(inputs, Pieces) else inputs
        if not isinstance(ids, Tensor):
            raise TypeError(must("inputs", "be ids or Pieces of both texts", class_name(inputs)))
        check_dim("inputs", ids, 3, "batch, 2, word")
        require(ids.shape[1] == 2, "inputs", "have the axes (batch, 2, word)", f"shape {tuple(ids.shape)}")
        if mask is not None:
            check_mask(mask, ids.shape if isinstance(inputs, Tensor) else (*ids.shape[:2], *mask.shape[2:]))
        flat = Pieces(*(part.flatten(0, 1) for part in inputs)) if isinstance(inputs, Pieces) else ids.flatten(0, 1)
        pooled = self._pool_words(flat, None if mask is None else mask.flatten(0, 1))
        u, v = pooled.reshape(-1, 2, pooled.shape[-1]).unbind(1)
        return torch.cat([u, v, (u - v).abs(), u * v], -1)

    def encode(
        self, texts: Sequence[tuple[Sequence[str], Sequence[str]]]
    ) -> tuple[Tensor | Pieces | PairedPieces, Tensor | None]:
        """Turn pairs of texts into the embedder's inputs.

        Args:
            texts: Two lists of words each.

        Returns:
            `PairedPieces` and None; or ids or `Pieces` of both texts, and the mask ``(batch, 2, word)``.
        """
        pairs = self._check_texts(texts)
        if self.reads_pieces:
            joined: PairedPieces = self.embedder.encode_pairs(pairs)  # type: ignore[operator]
            return joined, None
        inputs, mask = self.read([words for pair in pairs for words in pair])

        def paired(x: Tensor) -> Tensor:
            return x.reshape(len(pairs), 2, x.shape[-1])

        both = paired(inputs) if isinstance(inputs, Tensor) else Pieces(*map(paired, inputs))
        return both, paired(mask)

    def _check_texts(self, texts: Sequence[Any], start: int = 0) -> list[Any]:
        return [*check_pairs(texts, name="texts", start=start)]

    def text_of(self, item: LabelledPair) -> tuple[Sequence[str], Sequence[str]]:
        """Give the words of both texts.

        Args:
            item: An object with ``first``, ``second`` and ``label``.

        Returns:
            The two lists of words.
        """
        return item.first, item.second

    def sentences_of(self, text: tuple[Sequence[str], Sequence[str]]) -> Sequence[Sequence[str]]:
        """Give the two lists of words.

        Args:
            text: A pair.

        Returns:
            Both.
        """
        return text
