"""Labels for whole texts and for pairs of texts."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from polyembed._checks import check_choice, check_positive, check_probability, require
from polyembed.embeddings.embedder import WordEmbedder
from polyembed.encoders.pooling import SEQUENCE_POOLINGS, SequencePooling, pool_sequence
from polyembed.functional.losses import IGNORE_INDEX
from polyembed.functional.masking import widened
from polyembed.tagging.losses import LabelCrossEntropy, check_criterion
from polyembed.tagging.text_model import (
    TextModel,
    check_names,
    feature_size,
    to_device,
    word_features,
)
from polyembed.text.pairs import PairedPieces, check_pairs
from polyembed.text.pieces import Pieces

WordMask = Bool[Tensor, "*batch word"] | None


class Labelled(Protocol):
    """A text with its ``words`` and a label, or a pair with ``first``, ``second`` and a label."""

    @property
    def label(self) -> str | None:
        """The label."""
        ...


class TextClassifier(TextModel):
    """A label for each text: ``softmax(W dropout(x) + b)`` of a vector ``x`` of the text.

    With `hidden_size`, ``x`` first goes through ``tanh(W' dropout(x) + b')``. Calling a classifier
    gives the mean loss to train on; `predict` takes raw words. Members: `SequenceClassifier`,
    `PairClassifier`.
    """

    vectors_per_text = 1
    """The number of vectors that are joined to the vector of a text where words are pooled."""

    def __init__(
        self,
        embedder: WordEmbedder,
        labels: Sequence[str],
        *,
        encoder: nn.Module | None = None,
        pooling: SequencePooling = "cls",
        hidden_size: int | None = None,
        dropout: float = 0.1,
        criterion: nn.Module | None = None,
    ) -> None:
        labels = check_names("labels", labels)
        check_choice("pooling", pooling, SEQUENCE_POOLINGS)
        check_probability(dropout=dropout)
        check_positive(hidden_size=1 if hidden_size is None else hidden_size)
        check_criterion(criterion, len(labels))
        size = feature_size(embedder, encoder)
        super().__init__()
        self.embedder, self.encoder = embedder, encoder
        size *= 1 if self.reads_pieces else self.vectors_per_text
        fits = pooling != "cls" or self.reads_pieces
        require(fits, "pooling", "be 'mean' or 'max' over the vectors of words", "'cls'")
        self.labels = labels
        self.pooling, self.hidden_size, self.dropout = pooling, hidden_size, dropout
        self.hidden = None if hidden_size is None else nn.Linear(size, hidden_size)
        self.linear = nn.Linear(size if hidden_size is None else hidden_size, len(labels))
        self.criterion = LabelCrossEntropy() if criterion is None else criterion

    @property
    def reads_pieces(self) -> bool:
        """Whether pieces are pooled, as over a `PretrainedWordEncoder` alone, instead of words."""
        return self.encoder is None and hasattr(self.embedder, "piece_vectors")

    def features(self, inputs: Any, mask: WordMask = None) -> Float[Tensor, "batch dim"]:
        """Compute the texts' vectors.

        Args:
            inputs: The inputs, as `encode` makes them.
            mask: True = a word; None = all are. The mask is not read where pieces are pooled.

        Returns:
            The vectors, ``(batch, dim)``.
        """
        if self.reads_pieces:
            pieces, *types = inputs if isinstance(inputs, PairedPieces) else [inputs]
            vectors = self.embedder.piece_vectors(pieces, *types)  # type: ignore[operator]
            return pool_sequence(vectors, pieces.piece_mask, pooling=self.pooling)
        vectors = word_features(self.embedder, self.encoder, inputs, mask)
        return pool_sequence(vectors, mask, pooling=self.pooling)

    def forward(
        self, inputs: Any, *, labels: Int[Tensor, " batch"], mask: WordMask = None
    ) -> Float[Tensor, ""]:
        """Compute the mean loss.

        Args:
            inputs: The inputs, as `encode` makes them.
            labels: The ids of the labels (`encode_labels`); -100 does not count.
            mask: True = a word; None = all are.

        Returns:
            The criterion's mean loss in nats.
        """
        loss: Tensor = self.criterion(self.logits(inputs, mask), labels)
        return loss

    def logits(self, inputs: Any, mask: WordMask = None) -> Float[Tensor, "batch label"]:
        """Score each label: ``(batch, label)``."""
        x = F.dropout(self.features(inputs, mask), self.dropout, self.training)
        if self.hidden is not None:
            x = F.dropout(self.hidden(x).tanh(), self.dropout, self.training)
        scores: Tensor = self.linear(x)
        return scores

    def probabilities(self, inputs: Any, mask: WordMask = None) -> Float[Tensor, "batch label"]:
        """Compute the probability of each label ``(batch, label)``, in at least float32."""
        return widened(self.logits(inputs, mask)).softmax(-1)

    def encode_labels(self, labels: Sequence[str | None]) -> Int[Tensor, " batch"]:
        """Turn label names into ids.

        Args:
            labels: A name per text; None for a text without a label.

        Returns:
            The ids, ``(batch)`` int64; -100 for None.

        Raises:
            ValueError: If a name is outside the label set.
        """
        ids: dict[str | None, int] = {name: i for i, name in enumerate(self.labels)}
        ids[None] = IGNORE_INDEX
        for row, label in enumerate(labels):
            rule = f"be one of {', '.join(self.labels)}"
            known = label is None or label in self.labels  # any object may be asked for
            require(known, f"labels[{row}]", rule, repr(label))
        return torch.tensor([ids[label] for label in labels], dtype=torch.int64)

    def collate(self, items: Sequence[Any]) -> dict[str, Any]:
        """Build a training batch.

        Args:
            items: Labelled texts.

        Returns:
            ``inputs``, ``labels`` and ``mask``: the arguments of `forward`.
        """
        inputs, mask = self.encode([self.text_of(item) for item in items])
        return {
            "inputs": inputs,
            "labels": self.encode_labels([item.label for item in items]),
            "mask": mask,
        }

    def _label_batch(self, texts: Mapping[int, Any]) -> list[str]:
        return [self.labels[int(row.argmax())] for row in self._probabilities_of_batch(texts)]

    def _probabilities_of_batch(self, texts: Mapping[int, Any]) -> list[Tensor]:
        inputs, mask = to_device(self.encode(list(texts.values())), self.device)
        rows = self.probabilities(inputs, mask).cpu()
        for i, row in zip(texts, rows, strict=True):
            rule = "have a finite score for a label, and no NaN"
            require(not row.isnan().any(), f"texts[{i}]", rule, row.tolist())
        return list(rows)

    def labels_of(self, item: Any) -> list[str]:
        """Return the text's label in a list."""
        return [item.label]

    def check_items(self, items: Sequence[Any]) -> None:
        """Raise a `ValueError` for a name outside the label set."""
        self.encode_labels([item.label for item in items])


class SequenceClassifier(TextClassifier):
    """A label for each text, such as its sentiment: ``softmax(W dropout(pool(vectors)) + b)``.

    Over a `PretrainedWordEncoder` alone, the pieces' vectors are pooled, ``[CLS]`` and the other
    special pieces among them. Over any other embedder, or with a sequence encoder above, the words'
    vectors are pooled. Calling the classifier gives the mean loss to train on; `predict` takes raw
    words.

    Args:
        embedder: A `PretrainedWordEncoder`, or any other word embedder.
        labels: The label set, in the order of its ids.
        encoder: A sequence encoder over the vectors of words; none if None.
        pooling: ``"cls"`` for the first vector of a transformers encoder; ``"mean"`` or ``"max"``
            over all vectors.
        hidden_size: The size of a layer ``tanh(W' dropout(x) + b')`` before the last; no such layer
            if None.
        dropout: The dropout probability before each linear map, in training.
        criterion: The loss of logits and labels; `LabelCrossEntropy` if None.

    Shape:
        ids ``(batch, word)``, mask ``(batch, word)``, labels ``(batch)``; the loss is a scalar.

    Raises:
        ValueError: If the sizes of parts do not fit; if a label is outside the label set; or if the
            pooling is ``"cls"`` over words.
        TypeError: If a mask is not bool, or the embedder does not know its words.

    Example:
        >>> from polyembed import Lexicon, SourceEmbedding
        >>> lexicon = Lexicon(["me", "gusta", "that", "song"])
        >>> words = SourceEmbedding.from_embedding(nn.Embedding(6, 8), lexicon)
        >>> model = SequenceClassifier(words, ["bad", "good"], pooling="mean")
        >>> inputs, mask = model.encode([["me", "gusta"], ["song"]])
        >>> loss = model(inputs, labels=model.encode_labels(["good", "bad"]), mask=mask)
        >>> len(model.predict([["that", "canción"], []]))
        2

    Deviations: 2503.07990 has a linear map over ``[CLS]`` of a frozen mBERT by
    `AutoModelForSequenceClassification`, which has BERT's pooler (a tanh layer) between. Here the
    pooler is left out, and `hidden_size` adds an untrained one. An empty text over words has a
    vector of zeros.
    """

    def encode(self, texts: Sequence[Sequence[str]]) -> tuple[Tensor | Pieces, Tensor]:
        """Turn words into the embedder's inputs.

        Args:
            texts: Lists of words.

        Returns:
            Ids or `Pieces`, and the mask ``(batch, word)``.
        """
        return self.embedder.encode(texts)


class PairClassifier(TextClassifier):
    """A label for each pair of texts, such as entailment (XNLI) or paraphrase (PAWS-X).

    A transformers encoder reads both texts in one row, with its tokenizer's special pieces and
    token types. The row is pooled: ``softmax(W dropout(pool([CLS] u [SEP] v [SEP])) + b)``. Over
    words (a word embedder, another word encoder, or with a sequence encoder above) each text is
    read by itself, and the vectors ``u`` and ``v`` become ``[u, v, |u - v|, u * v]`` (Conneau et
    al. 2017).

    Args:
        embedder: A `PretrainedWordEncoder`, or any other word embedder.
        labels: The label set, in the order of its ids.
        encoder: A sequence encoder over the vectors of words; none if None.
        pooling: ``"cls"`` for the first vector of a transformers encoder; ``"mean"`` or ``"max"``
            over all vectors.
        hidden_size: The size of a layer ``tanh(W' dropout(x) + b')`` before the last; no such layer
            if None.
        dropout: The dropout probability before each linear map, in training.
        criterion: The loss of logits and labels; `LabelCrossEntropy` if None.

    Shape:
        `PairedPieces` ``(batch, piece)``, or ids and mask ``(batch, 2, word)``; labels ``(batch)``;
        the loss is a scalar.

    Raises:
        ValueError: If the sizes of parts do not fit; if a label is outside the label set; or if the
            pooling is ``"cls"`` over words.
        TypeError: If the tokenizer takes no pairs, a mask is not bool, or the embedder does not
            know its words.

    Example:
        >>> from polyembed import Lexicon, SourceEmbedding
        >>> lexicon = Lexicon(["me", "gusta", "that", "song"])
        >>> words = SourceEmbedding.from_embedding(nn.Embedding(6, 8), lexicon)
        >>> model = PairClassifier(words, ["no", "yes"], pooling="mean")
        >>> len(model.predict([(["me", "gusta"], ["that", "song"]), (["canción"], [])]))
        2

    Deviations: Conneau et al. have a hidden layer with ReLU over the four vectors; here only
    `hidden_size` adds one, with tanh.
    """

    vectors_per_text = 4

    def features(self, inputs: Any, mask: WordMask = None) -> Float[Tensor, "batch dim"]:
        """Compute the pairs' vectors.

        Args:
            inputs: The inputs, as `encode` makes them: `PairedPieces`, or the inputs of both texts,
                ``(batch, 2, ...)``.
            mask: True = a word; None = all are. The mask is not read with `PairedPieces`.

        Returns:
            The vectors, ``(batch, dim)``.
        """
        if self.reads_pieces:
            return super().features(inputs)
        for part in tree_leaves(inputs):
            if isinstance(part, Tensor):
                shape = tuple(part.shape)
                require(shape[1:2] == (2,), "inputs", "have the axes (batch, 2, word)", shape)
        flat = tree_map_only(Tensor, lambda part: part.flatten(0, 1), inputs)
        pooled = super().features(flat, None if mask is None else mask.flatten(0, 1))
        u, v = pooled.reshape(-1, 2, pooled.shape[-1]).unbind(1)
        return torch.cat([u, v, (u - v).abs(), u * v], -1)

    def encode(
        self, texts: Sequence[tuple[Sequence[str], Sequence[str]]]
    ) -> tuple[Tensor | Pieces | PairedPieces, Tensor | None]:
        """Turn pairs of texts into the embedder's inputs.

        Args:
            texts: Pairs of lists of words.

        Returns:
            `PairedPieces` and None; or ids or `Pieces` of both texts, and the mask
            ``(batch, 2, word)``.
        """
        pairs = self._check_texts(texts)
        if self.reads_pieces:
            joined: PairedPieces = self.embedder.encode_pairs(pairs)  # type: ignore[operator]
            return joined, None
        encoded = self.embedder.encode([words for pair in pairs for words in pair])
        found: tuple[Tensor | Pieces, Tensor] = tree_map_only(
            Tensor, lambda part: part.reshape(len(pairs), 2, *part.shape[1:]), encoded
        )
        return found

    def _check_texts(self, texts: Sequence[Any], start: int = 0) -> list[Any]:
        return check_pairs(texts, name="texts", start=start)

    def text_of(self, item: Any) -> tuple[Sequence[str], Sequence[str]]:
        """Return the words of both texts."""
        return item.first, item.second

    def sentences_of(self, text: tuple[Sequence[str], Sequence[str]]) -> Sequence[Sequence[str]]:
        """Return both lists of words."""
        return text
