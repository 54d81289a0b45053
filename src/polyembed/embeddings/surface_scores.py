"""Scores of tags from the features of words and their neighbours, as in a hand-featured CRF."""

from collections.abc import Sequence

from polyembed._checks import check_positive
from polyembed.embeddings.meta import MetaEmbedding
from polyembed.embeddings.spelled import SpelledEmbedding
from polyembed.embeddings.surface import FeatureSum
from polyembed.text.lexicon import Lexicon
from polyembed.text.surface import FEATURES, SurfaceSpelling

NEIGHBOUR_FEATURES = ("lower", "shape", "suffix3")
"""What a hand-made tagger knows of the words around one."""


def surface_scores(
    lexicon: Lexicon,
    num_tags: int,
    *,
    window: int = 2,
    features: Sequence[str] = FEATURES,
    neighbour_features: Sequence[str] = NEIGHBOUR_FEATURES,
    num_buckets: int = 2**16,
    dropout: float = 0.2,
) -> MetaEmbedding:
    """Build the linear path's embedder: scores of the tags at a word, and at each word around it.

    A word has a score for each tag and feature, and for its neighbours' tags others, of fewer
    features. All are zeros before training. `WideAndDeepEncoder` adds them up.

    Args:
        lexicon: The words.
        num_tags: The number of tags.
        window: The number of neighbours on each side that a word gives scores to.
        features: The features that score the word's own tag; see `SurfaceSpelling`.
        neighbour_features: The features that score its neighbours' tags.
        num_buckets: As in `SurfaceSpelling`.
        dropout: As in `FeatureSum`.

    Returns:
        An embedder of size ``num_tags * (2 * window + 1)``: the word's own scores, then those for
        the words ``window`` places after it to ``window`` places before it.

    Raises:
        ValueError: If a size is not positive, or a feature does not exist.

    Example:
        >>> surface_scores(Lexicon(["me", "gusta"]), num_tags=3).embedding_dim
        15
    """
    check_positive(num_tags=num_tags, window=window)
    parts = []
    for names, size in ((features, num_tags), (neighbour_features, 2 * window * num_tags)):
        spelling = SurfaceSpelling(names, num_buckets=num_buckets)
        scores = FeatureSum(spelling.num_units, size, dropout=dropout)
        parts.append(SpelledEmbedding(spelling, scores, lexicon))
    return MetaEmbedding.concat(parts)
