"""Words in, tags out: an embedder, a sequence encoder and a decoder in one model."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from polyembed._checks import check_positive, check_sentences, check_words, require, require_type
from polyembed.crf import span_log_probs
from polyembed.data.lines import MISSING_TAG
from polyembed.embeddings.embedder import WordEmbedder
from polyembed.encoders.cached import WordFeatures
from polyembed.functional.losses import IGNORE_INDEX
from polyembed.functional.masking import widened
from polyembed.metrics import scheme_of, split_label
from polyembed.tagging.decoders import (
    CRFDecoder,
    Decoder,
    Emissions,
    Features,
    Mask,
    SoftmaxDecoder,
    check_decoder,
    options_of,
)
from polyembed.tagging.text_model import (
    TextModel,
    check_names,
    feature_size,
    to_device,
    word_features,
)
from polyembed.text.pieces import Pieces

Step = Callable[[list[str]], Sequence[str]]
Prepare = Step | Sequence[Step] | None
"""A function from a sentence's words to as many words, or several functions, run in order."""


class Tagged(Protocol):
    """A sentence with a tag for each word."""

    @property
    def words(self) -> Sequence[str]:
        """The words."""
        ...

    @property
    def tags(self) -> Sequence[Any]:
        """A tag per word; None, or `MISSING_TAG`, where it is not known."""
        ...


class PredictedEntity(NamedTuple):
    """An entity and its probability.

    Attributes:
        start: The number of the entity's first word.
        end: The number of the word after the entity's last word.
        label: The entity's type.
        probability: The probability that precisely this span is an entity of this type.
    """

    start: int
    end: int
    label: str
    probability: float


class Tagger(TextModel):
    """A model with a tag for each word: what `SequenceTagger` and `VotingEnsemble` have in common.

    Attributes:
        tags: The tag set, in the order of its ids.
    """

    tags: tuple[str, ...]

    @abstractmethod
    def decode(self, inputs: Any, mask: Tensor | None = None) -> Tensor:
        """Return the ids of the best tags ``(batch, word)``; -100 at masked positions."""

    @abstractmethod
    def probabilities(self, inputs: Any, mask: Tensor | None = None) -> Tensor:
        """Compute the probability of each tag at each word ``(batch, word, tag)``."""

    @abstractmethod
    def encode_labels(self, labels: Sequence[Sequence[Any]]) -> Tensor:
        """Turn the tags of sentences into what `forward` takes, as the decoder encodes them."""

    def collate(self, items: Sequence[Tagged]) -> dict[str, Any]:
        """Build a training batch.

        Words that an encoder cut off have no vector and are left out of the loss.

        Args:
            items: Objects with ``words`` and ``tags``.

        Returns:
            The arguments of `forward`: ``inputs``, ``tags`` and ``mask``.

        Raises:
            ValueError: If a sentence has another number of tags than of words, or a tag is outside
                the tag set.
        """
        inputs, mask = self.encode([self.text_of(item) for item in items])
        tags = self.encode_labels([self.labels_of(item) for item in items])
        parts = tree_leaves(inputs, is_leaf=lambda part: isinstance(part, Pieces | WordFeatures))
        if mask is not None and all(isinstance(part, Pieces | WordFeatures) for part in parts):
            unseen = nn.functional.pad(mask, (1, 0))  # (batch, 1 + word), special pieces first
            for part in parts:
                if isinstance(part, WordFeatures):
                    unseen[:, 1:] &= part.features.eq(0).flatten(2).all(-1)
                else:
                    unseen = unseen.scatter(1, part.word_index + 1, False)
            if isinstance(self.decoder, Decoder):
                tags[unseen[:, 1:]] = True if tags.dtype == torch.bool else IGNORE_INDEX
            else:  # one of your own, whose tensor may have no value for an unknown tag
                mask = mask & ~unseen[:, 1:]
        return {"inputs": inputs, "tags": tags, "mask": mask}

    def labels_of(self, item: Tagged) -> list[Any]:
        """Return a sentence's tags, with None for missing tags."""
        missing = {None, MISSING_TAG}.difference(self.tags)
        tags = [  # a decoder of one's own may have other labels
            None if isinstance(tag, str | set | frozenset) and missing & {*options_of(tag)} else tag
            for tag in item.tags
        ]
        rule = f"be as many as the words, {len(item.words)}"
        require(len(tags) == len(item.words), "the tags of a sentence", rule, len(tags))
        return tags

    def check_items(self, items: Sequence[Tagged]) -> None:
        """Raise a `ValueError` for a tag or a sequence of tags that the decoder cannot encode."""
        self.encode_labels([self.labels_of(item) for item in items])

    def _label_batch(self, texts: Mapping[int, Sequence[str]]) -> list[list[Any]]:
        decoder: Any = self.decoder
        labels: list[list[Any]] = []
        for i, rows in self._of_words(texts, self.decode).items():
            try:
                labels.append(decoder.labels_of(rows) if texts[i] else [])
            except ValueError as error:
                raise ValueError(f"texts[{i}]: {error}") from error
        return labels

    def _probabilities_of_batch(self, texts: Mapping[int, Sequence[str]]) -> list[Tensor]:
        found = self._of_words(texts, self.probabilities)
        for i, rows in found.items():
            sound = bool((rows.sum(-1) > 0).all())
            rule = "have numbers that allow a tag for each word"
            require(sound, f"the scores of texts[{i}]", rule, "NaN, or all tags forbidden")
        return list(found.values())

    def _of_words(
        self, texts: Mapping[int, Sequence[str]], compute: Callable[[Any, Tensor], Tensor]
    ) -> dict[int, Tensor]:
        """Return a row per word of each text, on the CPU, without encoding empty texts."""
        found = dict.fromkeys(texts, torch.zeros(0, len(self.tags)))
        full = [i for i, words in texts.items() if words]
        if full:
            inputs, mask = to_device(self.encode([texts[i] for i in full]), self.device)
            for i, row in zip(full, compute(inputs, mask).cpu(), strict=True):
                found[i] = row[: len(texts[i])]
        return found


def prepared_by(
    prepare: Any, texts: Sequence[Sequence[str]], start: int = 0
) -> Sequence[Sequence[str]]:
    """Return the words that the steps of `prepare` make of each sentence."""
    if prepare is None:
        return texts
    sentences = check_sentences(texts, start=start)
    for step in prepare if isinstance(prepare, Sequence) else [prepare]:
        for i, words in enumerate(sentences):
            found = check_words(step(list(words)), name="what prepare returns")
            rule = f"keep the {len(words)} words of sentences[{start + i}]"
            require(len(found) == len(words), "prepare", rule, len(found))
            sentences[i] = found
    return sentences


class SequenceTagger(Tagger):
    """A tag for each word: ``decoder(encoder(embedder(words)))`` (Winata 2021, figure 1).

    Calling the tagger returns the mean loss to train on; `predict` takes raw words.

    Args:
        embedder: Any word embedder: its inputs are ids, `Pieces`, or a tuple of these for a mixed
            meta-embedding.
        tags: The tag set, in the order of its ids.
        encoder: A sequence encoder over the embedder's vectors, or None.
        decoder: The decoder of these tags; a `CRFDecoder` if None.
        prepare: The steps that prepare a sentence's words wherever the tagger takes raw words, in
            training and prediction: a `Normalizer`, a transliterator, a function from a list of
            words to as many words, or a list of these, run in order. None changes no words. A
            function that is not a `Configurable` cannot be saved.

    Shape:
        inputs of ``(batch, word)`` words, tags and mask ``(batch, word)``; the loss is a scalar.

    Raises:
        ValueError: If the sizes or tags of parts do not fit; if a tag is outside the tag set or an
            id outside the lexicon; or if `prepare` changes the number of words of a sentence.
        TypeError: If the mask is not bool, or the embedder does not know its words, as an
            `nn.Embedding`.

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
        decoder: Any = None,
        prepare: Prepare = None,
    ) -> None:
        tags = check_names("tags", tags)
        dim = feature_size(embedder, encoder)
        super().__init__()
        self.embedder = embedder
        self.encoder = encoder
        self.tags = tags
        self.decoder: Decoder = CRFDecoder(dim, tags) if decoder is None else decoder
        in_features = self.decoder.in_features
        require(in_features == dim, "decoder", f"take features of size {dim}", in_features)
        if self.decoder.tags == len(tags):  # built with their number
            self.decoder.tags = tags
        own = self.decoder.tags
        require(own in (tags, list(tags)), "decoder", f"have the tags {', '.join(tags)}", own)
        self.prepare: Any = prepare
        if isinstance(prepare, Sequence):
            modules = [step for step in prepare if isinstance(step, nn.Module)]
            if modules:
                self.prepare_modules = nn.ModuleList(modules)

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
        return prepared_by(self.prepare, texts, start)

    def words_of(self, texts: Sequence[Sequence[str]], start: int = 0) -> set[str]:
        """Return the words that `encode` looks up, after `prepare`."""
        return super().words_of(self.prepared(texts, start))

    def features(self, inputs: Any, mask: Mask = None) -> Features:
        """Compute the words' vectors in context, which the decoder reads.

        Args:
            inputs: The inputs, as `encode` makes them.
            mask: True = a word; None = all are.

        Returns:
            The vectors, ``(batch, word, dim)``.
        """
        return word_features(self.embedder, self.encoder, inputs, mask)

    def forward(self, inputs: Any, *, tags: Tensor, mask: Mask = None) -> Float[Tensor, ""]:
        """Compute the decoder's mean loss in nats.

        Args:
            inputs: The inputs, as `encode` makes them.
            tags: The tags, as `encode_labels` makes them; anything where the mask is off.
            mask: True = a word; None = all are.

        Returns:
            The loss, a scalar.
        """
        return self.decoder.loss(self.features(inputs, mask), tags, mask)

    def emissions(self, inputs: Any, mask: Mask = None) -> Emissions:
        """Score each tag at each word: ``(batch, word, tag)``."""
        return self.decoder.emissions(self.features(inputs, mask), mask)

    def decode(self, inputs: Any, mask: Mask = None) -> Tensor:
        """Return the decoder's best tags, ids ``(batch, word)``; -100 at masked positions."""
        return self.decoder.decode(self.features(inputs, mask), mask)

    def probabilities(self, inputs: Any, mask: Mask = None) -> Emissions:
        """Compute the probability of each tag at each word; zeros at masked positions."""
        return self.decoder.probabilities(self.features(inputs, mask), mask)

    def encode_labels(self, labels: Sequence[Sequence[Any]]) -> Shaped[Tensor, "batch word *tag"]:
        """Turn the tags of sentences into a tensor, as the decoder does (`Decoder.encode_labels`).

        Args:
            labels: A list of tags per sentence; None or `MISSING_TAG` for a tag that is not known.

        Returns:
            The decoder's tensor; of a `Decoder` the ids of the tags, ``(batch, word)``, padded with
            -100, or the sets of tags.
        """
        return self.decoder.encode_labels(labels)

    def predict_n_best(
        self,
        texts: Iterable[Sequence[str]],
        k: int,
        *,
        batch_size: int = 64,
        progress: bool | None = False,
    ) -> list[list[tuple[list[str], float]]]:
        """Return the k most likely sequences of tags from raw words; see `predict`.

        Args:
            texts: Lists of words.
            k: The number of sequences; a short sentence may have fewer.
            batch_size: The number of texts at once, as in `predict`.
            progress: Whether to show a progress bar, as in `predict`.

        Returns:
            For each sentence the tags of each sequence and their log-probability in nats, the best
            first.

        Raises:
            TypeError: If the decoder is not a `CRFDecoder`.
        """
        is_crf = isinstance(self.decoder, CRFDecoder)
        require_type(is_crf, "decoder", "be a CRFDecoder", self.decoder)
        predict = partial(type(self)._n_best_of_batch, k=k)
        return list(self._stream(texts, batch_size, progress, predict))

    def predict_entities(
        self,
        texts: Iterable[Sequence[str]],
        *,
        min_probability: float = 0.5,
        max_words: int = 8,
        overlapping: bool = False,
        batch_size: int = 64,
        progress: bool | None = False,
    ) -> list[list[PredictedEntity]]:
        """Return entities with their exact probabilities from raw words; see `predict`.

        The probability is the sum over all sequences of tags in which precisely this span is an
        entity of this type (`polyembed.crf.span_log_probs`). Entities that are not on the best path
        are found too. Entities are read strictly in the scheme of the tags, so convert IOB1 tags by
        `to_iob2` before training.

        Args:
            texts: Lists of words.
            min_probability: The least probability of an entity.
            max_words: The largest number of words in an entity.
            overlapping: Whether entities may overlap; if not, the most probable of overlapping
                entities is returned.
            batch_size: The number of texts at once, as in `predict`.
            progress: Whether to show a progress bar, as in `predict`.

        Returns:
            The entities of each text, ``(start, end, label, probability)`` with `end` after the
            last word: the most probable first if they may overlap, else in the order of the text.

        Raises:
            ValueError: If the tags mark no entities, `min_probability` is outside [0, 1],
                `max_words` is not positive, or the scores of a text are NaN.
            TypeError: If the decoder is neither a `CRFDecoder` nor a `SoftmaxDecoder`.
        """
        require(scheme_of(self.tags) is not None, "tags", "mark entities, as B-PER", self.tags)
        require(0 <= min_probability <= 1, "min_probability", "be in [0, 1]", min_probability)
        check_positive(max_words=max_words)
        check_decoder("decoder", self.decoder)
        predict = partial(
            type(self)._entities_of_batch,
            least=min_probability,
            max_words=max_words,
            overlapping=overlapping,
        )
        return list(self._stream(texts, batch_size, progress, predict))

    def _entities_of_batch(
        self, texts: Mapping[int, Sequence[str]], least: float, max_words: int, overlapping: bool
    ) -> list[list[PredictedEntity]]:
        scheme: Any = scheme_of(self.tags)

        def spans(inputs: Any, mask: Tensor) -> Tensor:
            wide = widened(self.emissions(inputs, mask))
            if isinstance(self.decoder, CRFDecoder):
                scores = self.decoder.crf.constrained_scores(wide.dtype)
            else:  # no tag depends on another
                zeros = wide.new_zeros(len(self.tags), len(self.tags))
                scores = zeros, zeros[0], zeros[0]
            return span_log_probs(
                wide, mask, *scores, self.tags, scheme=scheme, max_length=max_words
            ).log_probs

        types = list(dict.fromkeys(split_label(tag, scheme)[1] for tag in self.tags if tag != "O"))
        found = []
        for text, rows in self._of_words(texts, spans).items():
            require(not rows.isnan().any(), f"the scores of texts[{text}]", "be numbers", "NaN")
            shares = rows.exp()
            likely = ((rows > -math.inf) & (shares >= least)).nonzero().tolist()
            entities = [
                PredictedEntity(i, i + length + 1, types[kind], float(shares[i, length, kind]))
                for i, length, kind in likely
            ]
            kept: list[PredictedEntity] = []
            for one in sorted(entities, key=lambda one: -one.probability):
                apart = (one.end <= other.start or other.end <= one.start for other in kept)
                if overlapping or all(apart):
                    kept.append(one)
            found.append(kept if overlapping else sorted(kept))
        return found

    def _n_best_of_batch(
        self, texts: Mapping[int, Sequence[str]], k: int
    ) -> list[list[tuple[list[str], float]]]:
        inputs, mask = to_device(self.encode(list(texts.values())), self.device)
        crf: Any = self.decoder.crf
        paths = crf.n_best(self.emissions(inputs, mask), k, mask)
        found = []
        for words, tags, scores in zip(
            texts.values(), paths.tags.cpu(), paths.log_probs.tolist(), strict=True
        ):
            pairs = zip(tags[:, : len(words)], scores, strict=True)
            found.append([(self.decoder.labels_of(row), x) for row, x in pairs if x > -math.inf])
            require(bool(found[-1]), "the scores", "allow a sequence", f"none for {list(words)}")
        return found


class TokenClassifier(SequenceTagger):
    """A tag for each word by itself: dropout, a linear map and a softmax over any embedder.

    It is a `SequenceTagger` with a `SoftmaxDecoder`, as transformers' heads are.

    Args:
        embedder: Any word embedder.
        tags: The tag set, in the order of its ids.
        encoder: A sequence encoder over the embedder's vectors, or None.
        dropout: The dropout probability of the words' features, in training.
        criterion: The loss; cross-entropy if None (see `SoftmaxDecoder`).
        prepare: The steps that prepare a sentence's words, as in `SequenceTagger`.

    Shape:
        The same as of `SequenceTagger`.

    Raises:
        ValueError: If `SequenceTagger` would raise one.

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
        size = feature_size(embedder, encoder)
        decoder = SoftmaxDecoder(size, tags, dropout=dropout, criterion=criterion)
        super().__init__(embedder, tags, encoder=encoder, decoder=decoder, prepare=prepare)
        self.dropout, self.criterion = dropout, criterion
