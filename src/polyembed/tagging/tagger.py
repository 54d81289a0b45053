"""Words in, tags out: an embedder, a sequence encoder and a decoder in one model."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from polyembed._checks import (
    check_ids,
    check_mask,
    check_positive,
    check_sentences,
    class_name,
    must,
    require,
)
from polyembed.data.sentence import MISSING_TAG
from polyembed.embeddings.embedder import WordEmbedder
from polyembed.functional.losses import IGNORE_INDEX
from polyembed.metrics import MetricName
from polyembed.tagging._prepare import Prepare, prepare_words
from polyembed.tagging.decoders import CRFDecoder, Decoder, SoftmaxDecoder
from polyembed.tagging.text_model import (
    TextModel,
    check_labelled_words,
    check_names,
    check_part,
    feature_size,
    to_device,
    word_features,
)
from polyembed.text.pieces import Pieces


@runtime_checkable
class Tagged(Protocol):
    """A sentence with a tag for each word."""

    @property
    def words(self) -> Sequence[str]:
        """The words."""
        ...

    @property
    def tags(self) -> Sequence[str | None]:
        """One tag a word; None, or `MISSING_TAG`, where it is not known."""
        ...


class Tagger(TextModel):
    """A model with a tag for each word: what `SequenceTagger` and `VotingEnsemble` have in common.

    Attributes:
        tags: The tag set, in the order of its ids.
    """

    default_metric: ClassVar[MetricName] = "f1"
    item_fields: ClassVar[tuple[str, ...]] = ("words", "tags")

    tags: tuple[str, ...]

    @abstractmethod
    def decode(self, inputs: Any, mask: Tensor | None = None) -> Tensor:
        """Return the ids of the best tags ``(batch, word)``; -100 at masked positions."""

    @abstractmethod
    def probabilities(self, inputs: Any, mask: Tensor | None = None) -> Tensor:
        """Compute the probability of each tag at each word ``(batch, word, tag)``; zeros at masked positions."""

    @abstractmethod
    def encode_labels(self, sentences: Sequence[Sequence[str | None]]) -> Tensor:
        """Turn tag names into ids, padded with -100."""

    def collate(self, items: Sequence[Tagged]) -> dict[str, Any]:
        """Build a training batch.

        Args:
            items: Objects with ``words`` and ``tags``.

        Returns:
            ``inputs``, ``tags`` and ``mask``: the arguments of `forward`.

        Raises:
            ValueError: Another number of tags than of words, or a tag outside the tag set.
            TypeError: An item without words and tags.
        """
        for row, item in enumerate(items):
            if not isinstance(item, Tagged):
                raise TypeError(must(f"items[{row}]", "have words and tags", class_name(item)))
            count, found = len(item.words), len(item.tags)
            require(
                count == found, f"sentences[{row}].tags", f"be as many as the words, {count}", found
            )
        inputs, mask = self.encode([item.words for item in items])
        return {
            "inputs": inputs,
            "tags": self.encode_labels([item.tags for item in items]),
            "mask": mask,
        }

    def text_of(self, item: Tagged) -> Sequence[str]:
        """Return a sentence's words."""
        return item.words

    def labels_of(self, item: Tagged) -> list[str | None]:
        """Return a sentence's tags, with None for those that are missing."""
        if isinstance(item.tags, str):
            raise TypeError(must("tags", "be a list of tag names", f"the string {item.tags!r}"))
        return [None if tag == MISSING_TAG and tag not in self.tags else tag for tag in item.tags]

    def check_items(self, items: Sequence[Tagged]) -> None:
        """Raise a `ValueError` for a tag outside the tag set, or a sequence that the decoder's constraints forbid."""
        self.encode_labels([item.tags for item in items])

    def _check_texts(self, texts: Sequence[Any], start: int = 0) -> list[Any]:
        return [*check_sentences(texts, name="sentences", start=start)]

    def _label_batch(self, texts: Mapping[int, Sequence[str]]) -> list[list[str]]:
        predictions = []
        found = self._of_words(texts, self.decode, torch.zeros(0, dtype=torch.int64))
        for (i, words), row in zip(texts.items(), found, strict=True):
            tags = row.tolist()
            _check_scores(IGNORE_INDEX not in tags, i, words)
            predictions.append([self.tags[tag] for tag in tags])
        return predictions

    def _probabilities_of_batch(self, texts: Mapping[int, Sequence[str]]) -> list[Tensor]:
        found = self._of_words(texts, self.probabilities, torch.zeros(0, len(self.tags)))
        for (i, words), rows in zip(texts.items(), found, strict=True):
            _check_scores(bool((rows.sum(-1) > 0).all()), i, words)
        return found

    def _of_words(
        self,
        texts: Mapping[int, Sequence[str]],
        compute: Callable[[Any, Tensor], Tensor],
        nothing: Tensor,
    ) -> list[Tensor]:
        """Return a row for each word of each text, on the CPU; a text without words is not encoded."""
        full = {i: words for i, words in texts.items() if words}
        if not full:
            return [nothing] * len(texts)
        inputs, mask = self.encode(list(full.values()))
        rows = compute(to_device(inputs, self.device), to_device(mask, self.device)).cpu()
        found = {i: row[: len(words)] for (i, words), row in zip(full.items(), rows, strict=True)}
        return [found.get(i, nothing) for i in texts]


def _check_scores(sound: bool, place: int, words: Sequence[str]) -> None:
    rule = "have a tag for each word (scores of NaN, or all forbidden, give none)"
    require(sound, f"sentences[{place}]", rule, list(words))


class SequenceTagger(Tagger):
    """A tag for each word: ``decoder(encoder(embedder(words)))`` (Winata 2021, figure 1).

    Calling the tagger returns the mean loss to train on; `predict` takes raw words.

    Args:
        embedder: Any word embedder: its inputs are ids, `Pieces`, or a tuple of these for a mixed
            meta-embedding.
        tags: The tag set, in the order of its ids.
        encoder: A sequence encoder over the embedder's vectors, or None.
        decoder: Features to tags; a `CRFDecoder` if None.
        prepare: What prepares the words of a sentence wherever the tagger takes raw words, in
            training and prediction: a `Normalizer`, a transliterator, a function from a list of
            words to as many words, or a list of these, run in order. None changes no words. A
            function that is no `Configurable` cannot be saved.

    Shape:
        inputs of ``(batch, word)`` words, tags and mask ``(batch, word)``; the loss is a scalar.

    Raises:
        ValueError: Parts whose sizes do not fit, a tag outside the tag set, ids outside the
            lexicon, a sentence of which `prepare` makes more or fewer words.
        TypeError: A mask that is not bool, an embedder that does not know its words (an
            `nn.Embedding`), or words that `prepare` does not return as a list.

    Example:
        >>> from polyembed import Lexicon, SourceEmbedding
        >>> lexicon = Lexicon(["me", "gusta", "that", "song"])
        >>> words = SourceEmbedding.from_embedding(nn.Embedding(len(lexicon), 8), lexicon)
        >>> tagger = SequenceTagger(words, ["X", "VERB", "NOUN"])
        >>> inputs, mask = tagger.encode([["me", "gusta"], ["song"]])
        >>> loss = tagger(inputs, tags=tagger.encode_labels([["X", "VERB"], ["NOUN"]]), mask=mask)
        >>> [len(tags) for tags in tagger.predict([["that", "canción"], []])]
        [2, 0]
    """

    def __init__(
        self,
        embedder: WordEmbedder,
        tags: Sequence[str],
        *,
        encoder: nn.Module | None = None,
        decoder: Decoder | None = None,
        prepare: Prepare = None,
    ) -> None:
        tags = check_names("tags", tags, "tag")
        dim = feature_size(embedder, encoder)
        check_part(
            "decoder", decoder, "be a decoder or None", "loss", "decode", "in_features", "num_tags"
        )
        super().__init__()
        self.embedder = embedder
        self.encoder = encoder
        self.tags = tags
        self.decoder = CRFDecoder(dim, len(tags)) if decoder is None else decoder
        in_features, num_tags = self.decoder.in_features, self.decoder.num_tags
        require(in_features == dim, "decoder", f"take features of size {dim}", in_features)
        require(num_tags == len(tags), "decoder", f"score {len(tags)} tags", num_tags)
        self._tag_ids = {tag: i for i, tag in enumerate(self.tags)}
        self.prepare: Any = prepare

    @property
    def device(self) -> torch.device:
        """The device of the decoder, where inputs must be."""
        return next(self.decoder.parameters()).device

    def encode(self, texts: Sequence[Sequence[str]]) -> tuple[Any, Bool[Tensor, "batch word"]]:
        """Turn words into the embedder's inputs.

        Args:
            texts: Lists of words, before `prepare`.

        Returns:
            Ids, `Pieces` or a tuple of them, and the mask ``(batch, word)``.
        """
        return self.embedder.encode(self.prepared(texts))

    def prepared(self, texts: Sequence[Sequence[str]], start: int = 0) -> Sequence[Sequence[str]]:
        """Return the words as the embedder reads them; errors count sentences from `start`."""
        return texts if self.prepare is None else prepare_words(self.prepare, texts, start)

    def words_of(self, texts: Sequence[Sequence[str]], start: int = 0) -> set[str]:
        """Return the words that `encode` looks up, which are prepared; errors count texts from `start`."""
        return super().words_of(self.prepared(texts, start))

    def features(
        self, inputs: Any, mask: Bool[Tensor, "batch word"] | None = None
    ) -> Float[Tensor, "batch word dim"]:
        """Compute the words' vectors in context, which the decoder reads.

        Args:
            inputs: As `encode` makes them.
            mask: True = a word; None = all are.

        Returns:
            ``(batch, word, dim)``.
        """
        if isinstance(inputs, Tensor):
            check_ids("inputs", inputs)
            require(
                inputs.dim() == 2,
                "inputs",
                "have the axes (batch, word)",
                f"shape {tuple(inputs.shape)}",
            )
            check_mask(mask, inputs.shape)
        return word_features(self.embedder, self.encoder, inputs, mask)

    def forward(
        self,
        inputs: Any,
        *,
        tags: Int[Tensor, "batch word"],
        mask: Bool[Tensor, "batch word"] | None = None,
    ) -> Float[Tensor, ""]:
        """Compute the mean loss.

        Args:
            inputs: As `encode` makes them.
            tags: Tag ids (`encode_labels`), -100 where a tag is not known; anything where the mask is
                off.
            mask: True = a word; None = all are.

        Returns:
            The decoder's mean loss in nats.
        """
        check_ids("tags", tags)
        if isinstance(inputs, Pieces) and getattr(self.embedder, "overflow", None) != "truncate":
            check_labelled_words(tags, inputs, mask)
        return self.decoder.loss(self.features(inputs, mask), tags, mask)

    def emissions(
        self, inputs: Any, mask: Bool[Tensor, "batch word"] | None = None
    ) -> Float[Tensor, "batch word tag"]:
        """Score each tag at each word: ``(batch, word, tag)``."""
        return self.decoder.emissions(self.features(inputs, mask), mask)

    def decode(
        self, inputs: Any, mask: Bool[Tensor, "batch word"] | None = None
    ) -> Int[Tensor, "batch word"]:
        """Return the ids of the best tags ``(batch, word)``; -100 at masked positions."""
        return self.decoder.decode(self.features(inputs, mask), mask)

    def probabilities(
        self, inputs: Any, mask: Bool[Tensor, "batch word"] | None = None
    ) -> Float[Tensor, "batch word tag"]:
        """Compute the probability of each tag at each word; zeros at masked positions."""
        return self.decoder.probabilities(self.features(inputs, mask), mask)

    def encode_labels(self, sentences: Sequence[Sequence[str | None]]) -> Int[Tensor, "batch word"]:
        """Turn tag names into ids, padded with -100.

        Args:
            sentences: One list of tag names a sentence. A missing tag, which is None or a
                `MISSING_TAG` that the tag set lacks, becomes -100: its word does not count in the
                loss; of a CRF, all its tags are summed over.

        Returns:
            ``(batch, word)`` int64.

        Raises:
            ValueError: A name outside the tag set, or a sequence that the decoder's constraints
                forbid.
            TypeError: A string instead of a list of names.
        """
        width = max(map(len, sentences), default=0)
        known: dict[str | None, int] = {None: IGNORE_INDEX, MISSING_TAG: IGNORE_INDEX}
        known.update(self._tag_ids)
        rows = []
        for row, names in enumerate(sentences):
            if isinstance(names, str):
                raise TypeError(
                    must(f"tags[{row}]", "be a list of tag names", f"the string {names!r}")
                )
            for column, name in enumerate(names):
                if name not in known:
                    rule = f"be one of {', '.join(self.tags)}"
                    raise ValueError(must(f"tags[{row}][{column}]", rule, repr(name)))
            ids = [known[name] for name in names]
            self._check_constraints(row, ids)
            rows.append([*ids, *[IGNORE_INDEX] * (width - len(names))])
        return torch.tensor(rows, dtype=torch.int64).reshape(len(rows), width)

    def predict_n_best(
        self,
        texts: Iterable[Sequence[str]],
        k: int,
        *,
        batch_size: int = 64,
        cache_size: int = 50_000,
        progress: bool | None = False,
    ) -> list[list[tuple[list[str], float]]]:
        """Return the `k` most likely sequences of tags from raw words, with unseen words as in
        `predict`.

        Args:
            texts: Lists of words.
            k: How many sequences, at most a million; a short sentence may have fewer.
            batch_size: As in `predict`.
            cache_size: As in `predict`.
            progress: As in `predict`.

        Returns:
            For each sentence the tags of each sequence and their log-probability in nats, the best
            first.

        Raises:
            TypeError: As in `predict`, or a decoder other than a `CRFDecoder`.
        """
        check_positive(k=k)
        if not isinstance(self.decoder, CRFDecoder):
            raise TypeError(must("decoder", "be a CRFDecoder", class_name(self.decoder)))
        predict = partial(type(self)._n_best_of_batch, k=k)
        return list(self._stream(texts, batch_size, cache_size, progress, predict))

    def _n_best_of_batch(
        self, texts: Mapping[int, Sequence[str]], k: int
    ) -> list[list[tuple[list[str], float]]]:
        inputs, mask = (to_device(part, self.device) for part in self.encode(list(texts.values())))
        assert isinstance(self.decoder, CRFDecoder)
        k = min(k, len(self.tags) ** max(map(len, texts.values())))  # as many as there are
        paths = self.decoder.crf.n_best(self.emissions(inputs, mask), k, mask)
        found = []
        for (i, words), tags, scores in zip(
            texts.items(), paths.tags.tolist(), paths.log_probs.tolist(), strict=True
        ):
            _check_scores(scores[0] > -math.inf, i, words)
            pairs = [
                (row[: len(words)], score)
                for row, score in zip(tags, scores, strict=True)
                if score > -math.inf
            ]
            found.append([([self.tags[tag] for tag in row], score) for row, score in pairs])
        return found

    def _check_constraints(self, row: int, ids: Sequence[int]) -> None:
        constraints = getattr(self.decoder, "constraints", None)
        place = None if constraints is None else constraints.first_violation(ids)
        if place is not None:
            found = [
                MISSING_TAG if tag == IGNORE_INDEX else self.tags[tag]
                for tag in ids[max(0, place - 1) : place + 1]
            ]
            rule = "be a sequence that the decoder's constraints allow"
            raise ValueError(must(f"tags[{row}]", rule, f"{' '.join(found)} at {place}"))


class TokenClassifier(SequenceTagger):
    """A tag for each word by itself: dropout, a linear map and a softmax over any embedder
    (transformers' heads).

    It is a `SequenceTagger` with a `SoftmaxDecoder`.

    Args:
        embedder: As in `SequenceTagger`.
        tags: The tag set, in the order of its ids.
        encoder: A sequence encoder over the embedder's vectors, or None.
        dropout: Of the words' features, in training.
        criterion: The loss; cross-entropy if None (see `SoftmaxDecoder`).
        prepare: As in `SequenceTagger`.

    Shape:
        As in `SequenceTagger`.

    Raises:
        ValueError: As in `SequenceTagger`.
        TypeError: As in `SequenceTagger`.

    Example:
        >>> from polyembed import Lexicon, SourceEmbedding
        >>> from polyembed.tagging import FocalLoss
        >>> lexicon = Lexicon(["me", "gusta", "that", "song"])
        >>> words = SourceEmbedding.from_embedding(nn.Embedding(6, 8), lexicon)
        >>> model = TokenClassifier(words, ["X", "VERB"], criterion=FocalLoss())
        >>> [len(tags) for tags in model.predict([["that", "canción"], []])]
        [2, 0]
    """

    def __init__(
        self,
        embedder: WordEmbedder,
        tags: Sequence[str],
        *,
        encoder: nn.Module | None = None,
        dropout: float = 0.1,
        criterion: nn.Module | None = None,
        prepare: Prepare = None,
    ) -> None:
        count = len(check_names("tags", tags, "tag"))
        decoder = SoftmaxDecoder(
            feature_size(embedder, encoder), count, dropout=dropout, criterion=criterion
        )
        super().__init__(embedder, tags, encoder=encoder, decoder=decoder, prepare=prepare)
        self.dropout, self.criterion = dropout, criterion
