"""The lower half of every model of texts: an embedder, its lexicon, and a sequence encoder above."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from polyembed._checks import check_ids, check_mask, class_name, must, require
from polyembed.embeddings.source import as_word_embedder
from polyembed.functional.losses import IGNORE_INDEX
from polyembed.tagging.text_model import TextModel, Vocabulary
from polyembed.text.lexicon import Lexicon
from polyembed.text.pieces import Pieces


class WordReader(TextModel):
    """Words to features: ``encoder(embedder(words))``.

    Args:
        embedder: A word embedder (ids), or a word encoder (`Pieces`).
        lexicon: The word embedder's lexicon; None for a word encoder.
        encoder: A sequence encoder over the embedder's vectors; none if None.
    """

    def __init__(self, embedder: nn.Module, *, lexicon: Lexicon | None, encoder: nn.Module | None) -> None:
        feature_size(embedder, encoder)
        super().__init__()
        self.embedder = as_word_embedder(embedder)
        self.lexicon = lexicon
        self.encoder = encoder
        if lexicon is not None:
            count = int(self.embedder.num_embeddings)  # type: ignore[arg-type]
            require(count == len(lexicon), "embedder", f"have the lexicon's {len(lexicon)} ids", count)
            mark = getattr(self.embedder, "lexicon_mark", None)
            same = mark is None or mark == lexicon.mark(count)
            require(same, "embedder", "be built for this lexicon", "one for other words")
        elif not hasattr(embedder, "encode"):
            raise TypeError(must("lexicon", f"be given for the word embedder {class_name(embedder)}", None))

    def check_inputs(self, inputs: Tensor | Pieces, mask: Tensor | None) -> None:
        """Require ids ``(batch, word)`` and a mask of their shape, where the inputs are ids."""
        if isinstance(inputs, Tensor):
            check_ids("inputs", inputs)
            require(inputs.dim() == 2, "inputs", "have the axes (batch, word)", f"shape {tuple(inputs.shape)}")
            check_mask(mask, inputs.shape)

    def word_features(
        self, inputs: Int[Tensor, "batch word"] | Pieces, mask: Bool[Tensor, "batch word"] | None = None
    ) -> Float[Tensor, "batch word dim"]:
        """Compute the words' vectors in context.

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

    def read(self, sentences: Sequence[Sequence[str]]) -> tuple[Tensor | Pieces, Tensor]:
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

    def _lexicon_mark(self) -> int | None:
        return None if self.lexicon is None else self.lexicon.mark(len(self.lexicon))


def feature_size(embedder: nn.Module, encoder: nn.Module | None) -> int:
    """Check that an embedder and an encoder fit, and give the size of what comes out."""
    check_part("embedder", embedder, "be a word embedder or a word encoder", "embedding_dim")
    check_part("encoder", encoder, "be a sequence encoder or None", "input_size", "embedding_dim")
    dim = int(embedder.embedding_dim)  # type: ignore[arg-type]
    if encoder is None:
        return dim
    input_size = getattr(encoder, "input_size", None)
    require(input_size == dim, "encoder", f"have the embedder's {dim} as its input_size", input_size)
    return int(encoder.embedding_dim)  # type: ignore[arg-type]


def check_part(name: str, part: object, rule: str, *attributes: str) -> None:
    """Require a part to have what its family has."""
    if part is not None and not all(hasattr(part, attribute) for attribute in attributes):
        raise TypeError(must(name, f"{rule} (with {', '.join(attributes)})", class_name(part)))


def check_labelled_words(tags: Tensor, pieces: Pieces, mask: Tensor | None) -> None:
    """Refuse tags of special pieces and padding, where no mask of words says which places count.

    It reads values, so it looks at nothing but tensors on the CPU.

    Args:
        tags: Tag ids.
        pieces: The sentences that they belong to.
        mask: True = a word; the mask of pieces is none.

    Raises:
        ValueError: A tag beyond the last word of its sentence.
    """
    index, real = pieces.word_index, pieces.piece_mask
    if torch.compiler.is_compiling() or tags.device.type != "cpu" or tags.dim() != 2 or len(tags) != len(index):
        return
    if mask is not None and not (mask.shape == real.shape == tags.shape and torch.equal(mask, real)):
        return
    counts = index.amax(1) + 1 if index.shape[1] else index.new_zeros(len(index))
    labelled = tags.ne(IGNORE_INDEX) if mask is None else tags.ne(IGNORE_INDEX) & mask
    beyond = labelled & (torch.arange(tags.shape[1]) >= counts[:, None])
    if bool(beyond.any()):
        row, place = beyond.nonzero()[0].tolist()
        rule = f"label words, of which there are {int(counts[row])}, and be -100 for special pieces and padding"
        raise ValueError(must(f"tags[{row}]", rule, f"{int(tags[row, place])} at place {place}"))
