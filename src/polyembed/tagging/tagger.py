"""Words in, tags out: an embedder, a sequence encoder and a decoder under one roof."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from polyembed._checks import check_ids, must, require
from polyembed._pretrained import repr_call
from polyembed.functional.losses import IGNORE_INDEX
from polyembed.tagging.decoders import CRFDecoder, Decoder, SoftmaxDecoder
from polyembed.tagging.text_model import check_names, to_device
from polyembed.tagging.word_reader import WordReader, check_labelled_words, check_part, feature_size
from polyembed.tagging.word_tagger import Tagged, WordTagger
from polyembed.text.lexicon import Lexicon
from polyembed.text.pieces import Pieces

__all__ = ["SequenceTagger", "Tagged", "TokenClassifier", "to_device"]


class SequenceTagger(WordReader, WordTagger):
    """A tag for each word: ``decoder(encoder(embedder(words)))`` (Winata 2021, figure 1).

    Over a word embedder the inputs are a lexicon's ids, over a word encoder they are `Pieces`. Calling the
    tagger gives the mean loss to train on; `predict` takes raw words.

    Args:
        embedder: A word embedder (ids), or a word encoder (`Pieces`; it has ``embedding_dim`` and
            ``encode(sentences)``, which gives `Pieces` and a mask).
        tags: The tag set, in the order of its ids.
        lexicon: The word embedder's lexicon; None for a word encoder.
        encoder: A sequence encoder over the embedder's vectors; none if None.
        decoder: Features to tags; a `CRFDecoder` if None.

    Shape:
        ids ``(batch, word)``, tags and mask ``(batch, word)``; the loss is a scalar.

    Raises:
        ValueError: Parts whose sizes do not fit, a tag outside the tag set, ids outside the lexicon.
        TypeError: A mask that is not bool, or no lexicon where one is needed.

    Example:
        >>> lexicon = Lexicon(["me", "gusta", "that", "song"])
        >>> tagger = SequenceTagger(nn.Embedding(len(lexicon), 8), ["X", "VERB", "NOUN"], lexicon=lexicon)
        >>> ids, mask = lexicon.encode([["me", "gusta"], ["song"]])
        >>> loss = tagger(ids, tags=tagger.encode_tags([["X", "VERB"], ["NOUN"]]), mask=mask)
        >>> [len(tags) for tags in tagger.predict([["that", "canción"], []])]
        [2, 0]

    Deviations: none.
    """

    def __init__(
        self,
        embedder: nn.Module,
        tags: Sequence[str],
        *,
        lexicon: Lexicon | None,
        encoder: nn.Module | None = None,
        decoder: Decoder | None = None,
    ) -> None:
        tags = check_names("tags", tags, "tag")
        dim = feature_size(embedder, encoder)
        check_part("decoder", decoder, "be a decoder or None", "loss", "decode", "num_tags")
        super().__init__(embedder, lexicon=lexicon, encoder=encoder)
        self.tags = tags
        self.decoder = CRFDecoder(dim, len(tags)) if decoder is None else decoder
        in_features, num_tags = self.decoder.linear.in_features, self.decoder.num_tags
        require(in_features == dim, "decoder", f"take features of size {dim}", in_features)
        require(num_tags == len(tags), "decoder", f"score {len(tags)} tags", num_tags)
        self._tag_ids = {tag: i for i, tag in enumerate(self.tags)}

    @property
    def device(self) -> torch.device:
        """Tell where inputs must be."""
        return self.decoder.linear.weight.device

    def features(
        self, inputs: Int[Tensor, "batch word"] | Pieces, mask: Bool[Tensor, "batch word"] | None = None
    ) -> Float[Tensor, "batch word dim"]:
        """Compute what the decoder sees.

        Args:
            inputs: A lexicon's ids, or `Pieces`.
            mask: True = a word; None = all are.

        Returns:
            Words' features in context.
        """
        return self.word_features(inputs, mask)

    def forward(
        self,
        inputs: Int[Tensor, "batch word"] | Pieces,
        *,
        tags: Int[Tensor, "batch word"],
        mask: Bool[Tensor, "batch word"] | None = None,
    ) -> Float[Tensor, ""]:
        """Compute the mean loss.

        Args:
            inputs: A lexicon's ids, or `Pieces`.
            tags: Tag ids (`encode_tags`); anything where the mask is off.
            mask: True = a word; None = all are.

        Returns:
            The decoder's mean loss in nats.
        """
        check_ids("tags", tags)
        if isinstance(inputs, Pieces) and getattr(self.embedder, "overflow", None) != "truncate":
            check_labelled_words(tags, inputs, mask)
        return self.decoder.loss(self.features(inputs, mask), tags, mask)

    def emissions(
        self, inputs: Int[Tensor, "batch word"] | Pieces, mask: Bool[Tensor, "batch word"] | None = None
    ) -> Float[Tensor, "batch word tag"]:
        """Score each tag at each word.

        Args:
            inputs: A lexicon's ids, or `Pieces`.
            mask: True = a word; None = all are.

        Returns:
            ``(batch, word, tag)``.
        """
        return self.decoder.emissions(self.features(inputs, mask), mask)

    def decode(
        self, inputs: Int[Tensor, "batch word"] | Pieces, mask: Bool[Tensor, "batch word"] | None = None
    ) -> Int[Tensor, "batch word"]:
        """Find the best tags.

        Args:
            inputs: A lexicon's ids, or `Pieces`.
            mask: True = a word; None = all are.

        Returns:
            Tag ids, -100 at masked positions.
        """
        return self.decoder.decode(self.features(inputs, mask), mask)

    def probabilities(
        self, inputs: Int[Tensor, "batch word"] | Pieces, mask: Bool[Tensor, "batch word"] | None = None
    ) -> Float[Tensor, "batch word tag"]:
        """Compute the probability of each tag at each word.

        Args:
            inputs: A lexicon's ids, or `Pieces`.
            mask: True = a word; None = all are.

        Returns:
            ``(batch, word, tag)``; zeros at masked positions.
        """
        return self.decoder.probabilities(self.features(inputs, mask), mask)

    def encode_tags(self, sentences: Sequence[Sequence[str]]) -> Int[Tensor, "batch word"]:
        """Turn tag names into ids, padded with -100.

        Args:
            sentences: One list of tag names a sentence.

        Returns:
            ``(batch, word)`` int64.

        Raises:
            ValueError: A name outside the tag set, or a sequence that the decoder's constraints forbid.
        """
        width = max(map(len, sentences), default=0)
        rows = []
        for row, names in enumerate(sentences):
            for column, name in enumerate(names):
                if name not in self._tag_ids:
                    rule = f"be one of {', '.join(self.tags)}"
                    raise ValueError(must(f"tags[{row}][{column}]", rule, repr(name)))
            ids = [self._tag_ids[name] for name in names]
            self._check_constraints(row, ids)
            rows.append([*ids, *[IGNORE_INDEX] * (width - len(names))])
        return torch.tensor(rows, dtype=torch.int64).reshape(len(rows), width)

    def _check_constraints(self, row: int, ids: Sequence[int]) -> None:
        constraints = getattr(self.decoder, "constraints", None)
        place = None if constraints is None else constraints.first_violation(ids)
        if place is not None:
            found = [self.tags[tag] for tag in ids[max(0, place - 1) : place + 1]]
            rule = "be a sequence that the decoder's constraints allow"
            raise ValueError(must(f"tags[{row}]", rule, f"{' '.join(found)} at {place}"))

    def encode(self, sentences: Sequence[Sequence[str]]) -> tuple[Tensor | Pieces, Tensor]:
        """Turn words into the embedder's inputs.

        Args:
            sentences: Lists of words.

        Returns:
            Ids or `Pieces`, and the mask ``(batch, word)``.
        """
        return self.read(sentences)

    def signature(self) -> dict[str, Any]:
        """Say in plain values what a checkpoint must agree on, besides shapes.

        Returns:
            The tags, a mark of the lexicon, and the decoder's criterion if it has one.
        """
        criterion = getattr(self.decoder, "criterion", None)
        return {**super().signature(), **({} if criterion is None else {"criterion": repr(criterion)})}

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        self._vocabularies()  # the embedder catches up with a lexicon that somebody else has extended
        return {
            "embedder": self.embedder,
            "tags": list(self.tags),
            "lexicon": self.lexicon,
            "encoder": self.encoder,
            "decoder": self.decoder,
        }

    def __repr__(self) -> str:
        return repr_call(self, **self.get_config())


class TokenClassifier(SequenceTagger):
    """A tag for each word on its own: dropout, a linear map and a softmax over any embedder (transformers' heads).

    It is a `SequenceTagger` with a `SoftmaxDecoder`, and goes wherever one goes: `fit`, `fit_ensemble`,
    `VotingEnsemble`. Labels belong to words; special pieces have none.

    Args:
        embedder: A word embedder (ids), or a word encoder (`Pieces`), as `PretrainedWordEncoder`.
        tags: The tag set, in the order of its ids.
        lexicon: The word embedder's lexicon; None for a word encoder.
        encoder: A sequence encoder over the embedder's vectors; none if None.
        dropout: Of the words' features, in training.
        criterion: The loss; cross-entropy if None (see `SoftmaxDecoder`).

    Shape:
        ids ``(batch, word)``, tags and mask ``(batch, word)``; the loss is a scalar.

    Raises:
        ValueError: Parts whose sizes do not fit, a tag outside the tag set, a tag where there is no word.
        TypeError: A mask that is not bool, or no lexicon where one is needed.

    Example:
        >>> from polyembed.tagging.losses import FocalLoss
        >>> lexicon = Lexicon(["me", "gusta", "that", "song"])
        >>> model = TokenClassifier(nn.Embedding(6, 8), ["X", "VERB"], lexicon=lexicon, criterion=FocalLoss())
        >>> [len(tags) for tags in model.predict([["that", "canción"], []])]
        [2, 0]

    Deviations: none from the linear head of 2503.07990, over the vector of a word's first piece by default.
    """

    def __init__(
        self,
        embedder: nn.Module,
        tags: Sequence[str],
        *,
        lexicon: Lexicon | None = None,
        encoder: nn.Module | None = None,
        dropout: float = 0.1,
        criterion: nn.Module | None = None,
    ) -> None:
        count = len(check_names("tags", tags, "tag"))
        decoder = SoftmaxDecoder(feature_size(embedder, encoder), count, dropout=dropout, criterion=criterion)
        super().__init__(embedder, tags, lexicon=lexicon, encoder=encoder, decoder=decoder)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        config, head = super().get_config(), self.decoder.get_config()
        del config["decoder"]
        return {**config, "dropout": head["dropout"], "criterion": head["criterion"]}
