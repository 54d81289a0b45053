"""Batches for training loops of others: transformers, Accelerate, Lightning Fabric, torch."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from polyembed.tagging.text_model import TextModel


class DataCollatorForWords:
    """Batches for any training loop: the arguments of a tagger's or classifier's `forward`.

    ``model(**batch)`` is the mean loss. Rows are what `fit` takes, or mappings with the same keys,
    as `datasets` gives them. Words that the model's lexicon lacks are unknown here, while `predict`
    gives them vectors of their own; the model of ``model.with_words(words)`` knows them.

    Args:
        model: The tagger or classifier.

    Example:
        >>> from torch import nn
        >>> from polyembed import Lexicon, SequenceTagger, SourceEmbedding
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> words = SourceEmbedding.from_embedding(nn.Embedding(4, 8), lexicon)
        >>> tagger = SequenceTagger(words, ["X", "VERB"])
        >>> batch = DataCollatorForWords(tagger)([{"words": ["me"], "tags": ["VERB"]}])
        >>> batch["tags"], tagger(**batch).shape
        (tensor([[1]]), torch.Size([]))
    """

    def __init__(self, model: TextModel) -> None:
        self.model = model

    def __call__(self, rows: Sequence[Any]) -> dict[str, Any]:
        """Build a batch.

        Args:
            rows: Labelled texts: objects, or mappings.

        Returns:
            The arguments of the model's `forward`.
        """
        items = [SimpleNamespace(**row) if isinstance(row, Mapping) else row for row in rows]
        return self.model.collate(items)
