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
        num_tags: How many tags.
        window: How many neighbours on each side a word gives scores to.
        features: See `SurfaceSpelling`; those that score the word's own tag.
        neighbour_features: Those that score its neighbours' tags.
        num_buckets: See `SurfaceSpelling`.
        dropout: See `FeatureSum`.

    Returns:
        An embedder of size ``num_tags * (2 * window + 1)``: the word's own scores, then those for
        the words ``window`` places after it to ``window`` places before it.

    Raises:
        ValueError: Sizes that are not positive, or features that do not exist.

    Example:
        >>> surface_scores(Lexicon(["me", "gusta"]), num_tags=3).embedding_dim
        15
    """
    check_positive(num_tags=num_tags, window=window)

    def scores(names: Sequence[str], size: int) -> SpelledEmbedding:
        spelling = SurfaceSpelling(names, num_buckets=num_buckets)
        return SpelledEmbedding(
            spelling, FeatureSum(spelling.num_units, size, dropout=dropout), lexicon
        )

    return MetaEmbedding.concat(
        [scores(features, num_tags), scores(neighbour_features, 2 * window * num_tags)]
    )
