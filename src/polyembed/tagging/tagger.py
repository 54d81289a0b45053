"""Words in, tags out: an embedder, a sequence encoder and a decoder under one roof."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from polyembed._checks import check_ids, check_mask, class_name, must, require
from polyembed._pretrained import repr_call
from polyembed.embeddings.source import as_word_embedder
from polyembed.tagging.decoders import IGNORE_INDEX, CRFDecoder, Decoder
from polyembed.tagging.word_tagger import Tagged, Vocabulary, WordTagger, to_device
from polyembed.text.lexicon import Lexicon
from polyembed.text.pieces import Pieces

__all__ = ["SequenceTagger", "Tagged", "to_device"]


class SequenceTagger(WordTagger):
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
        if isinstance(tags, str):
            raise TypeError(must("tags", "be a sequence of tag names", f"the string {tags!r}"))
        if not isinstance(tags, Sequence) or not all(isinstance(tag, str) for tag in tags):
            raise TypeError(must("tags", "be a sequence of tag names", f"{class_name(tags)} {tags!r}"))
        _check_part("embedder", embedder, "be a word embedder or a word encoder", "embedding_dim")
        _check_part("encoder", encoder, "be a sequence encoder or None", "input_size", "embedding_dim")
        _check_part("decoder", decoder, "be a decoder or None", "loss", "decode", "num_tags")
        require(len(tags) > 0 and len(set(tags)) == len(tags), "tags", "be different names, at least one", list(tags))
        super().__init__()
        self.embedder = as_word_embedder(embedder)
        self.tags = tuple(tags)
        self.lexicon = lexicon
        self.encoder = encoder
        dim = int(self.embedder.embedding_dim)  # type: ignore[arg-type]
        if encoder is not None:
            input_size = getattr(encoder, "input_size", None)
            require(input_size == dim, "encoder", f"have the embedder's {dim} as its input_size", input_size)
            dim = int(encoder.embedding_dim)  # type: ignore[arg-type]
        self.decoder = CRFDecoder(dim, len(tags)) if decoder is None else decoder
        in_features, num_tags = self.decoder.linear.in_features, self.decoder.num_tags
        require(in_features == dim, "decoder", f"take features of size {dim}", in_features)
        require(num_tags == len(tags), "decoder", f"score {len(tags)} tags", num_tags)
        if lexicon is not None:
            count = int(self.embedder.num_embeddings)  # type: ignore[arg-type]
            require(count == len(lexicon), "embedder", f"have the lexicon's {len(lexicon)} ids", count)
            mark = getattr(self.embedder, "lexicon_mark", None)
            same = mark is None or mark == lexicon.mark(count)
            require(same, "embedder", "be built for this lexicon", "one for other words")
        elif not hasattr(embedder, "encode"):
            raise TypeError(must("lexicon", f"be given for the word embedder {class_name(embedder)}", None))
        self._tag_ids = {tag: i for i, tag in enumerate(self.tags)}

    @property
    def device(self) -> torch.device:
        """Tell where inputs must be."""
        return self.decoder.linear.weight.device

    def check_inputs(self, inputs: Tensor | Pieces, mask: Tensor | None) -> None:
        """Require ids ``(batch, word)`` and a mask of their shape, where the inputs are ids."""
        if isinstance(inputs, Tensor):
            check_ids("inputs", inputs)
            require(inputs.dim() == 2, "inputs", "have the axes (batch, word)", f"shape {tuple(inputs.shape)}")
            check_mask(mask, inputs.shape)

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
        self.check_inputs(inputs, mask)
        x: Tensor = self._embed(inputs, mask)
        return x if self.encoder is None else self.encoder(x, mask)

    def _embed(self, inputs: Tensor | Pieces, mask: Tensor | None) -> Tensor:
        """Give the words' vectors; a word encoder counts words by the mask, without reading the pieces."""
        known = isinstance(inputs, Pieces) and mask is not None
        x: Tensor = self.embedder(inputs, mask.shape[1]) if known and mask is not None else self.embedder(inputs)
        return x

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
        if self.lexicon is not None:
            return self.lexicon.encode(sentences)
        encoded: tuple[Pieces, Tensor] = self.embedder.encode(sentences)  # type: ignore[operator]
        return encoded

    def _vocabularies(self) -> list[Vocabulary]:
        """List the lexicon and the embedder that follows it; nothing for a word encoder.

        Returns:
            One vocabulary, or none.
        """
        return [] if self.lexicon is None else [Vocabulary(self.lexicon, [self.embedder])]

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


def _check_part(name: str, part: object, rule: str, *attributes: str) -> None:
    if part is not None and not all(hasattr(part, attribute) for attribute in attributes):
        raise TypeError(must(name, f"{rule} (with {', '.join(attributes)})", class_name(part)))
