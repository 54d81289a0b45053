"""The tagger whose scores the documentation reports, in one call."""

from collections.abc import Iterable, Sequence
from typing import Any

from polyembed._checks import require, require_type
from polyembed.data.lines import MISSING_TAG
from polyembed.embeddings import (
    CharCNN,
    HierarchicalMetaEmbedding,
    MetaEmbedding,
    SourceEmbedding,
    SpelledEmbedding,
    UniqueWords,
    WordEmbedder,
    surface_scores,
)
from polyembed.encoders import LSTMSequenceEncoder, WideAndDeepEncoder
from polyembed.tagging.decoders import CRFDecoder, options_of
from polyembed.tagging.tagger import Prepare, SequenceTagger, Tagged, prepared_by
from polyembed.tagging.text_model import check_names
from polyembed.text import Lexicon
from polyembed.vectors import BPEmbVectors, WordVectors

FROZEN_DIM = 200
"""The size that the vectors of a frozen contextual embedder are mapped to."""

MOST_BUCKETS = 65_536
"""The largest number of rows in a table of hashed features. The table of a small lexicon has fewer
rows, but at least three per word.
"""


def build_tagger(
    train: Iterable[Tagged],
    *,
    words: Sequence[WordVectors] = (),
    subwords: Sequence[BPEmbVectors] = (),
    contextual: WordEmbedder | None = None,
    tags: Sequence[str] | None = None,
    prepare: Prepare = None,
) -> SequenceTagger:
    """Build the tagger whose scores the documentation reports, from the sources that are given.

    A source that is not given adds no parameters. The same tagger, built part by part::

        lexicon = Lexicon.from_sentences(sentence.words for sentence in train)
        hme = HierarchicalMetaEmbedding(
            words=MetaEmbedding.self_attention([SourceEmbedding(x, lexicon) for x in words], ...),
            subwords=MetaEmbedding.self_attention(
                [SpelledEmbedding.from_pieces(x, lexicon) for x in subwords], ...
            ),
            characters=SpelledEmbedding.from_characters(lexicon, CharCNN(..., dropout=0.25)),
            surface=SpelledEmbedding.from_surface(lexicon, num_buckets=...),
        )
        frozen = MetaEmbedding.linear([contextual], embedding_dim=200)  # if contextual is frozen
        # the linear path: hashed features of a window; as many buckets as the surface has
        scores = surface_scores(lexicon, len(tags), num_buckets=...)
        lstm = LSTMSequenceEncoder(..., hidden_size=128, dropout=0.4)
        encoder = WideAndDeepEncoder(lstm, len(tags))
        embedder = MetaEmbedding.concat([UniqueWords(hme), frozen, scores])
        decoder = CRFDecoder(encoder.embedding_dim, tags, extra_emissions=True)
        tagger = SequenceTagger(embedder, tags, encoder=encoder, decoder=decoder)

    Without any source this is a tagger by spelling alone: characters, surface features and the
    linear path. Sources that were trained on the training sentences alone add no information; give
    sources that were trained on other text.

    Args:
        train: The sentences to train on; the lexicon, the characters and the tags come from them.
        words: Vectors of words, such as fastText's of each language; their sizes may differ.
        subwords: Vectors of byte pairs of each language.
        contextual: A contextual embedder: a `PretrainedWordEncoder`, trained or frozen, or a
            `CachedEmbedder`. The tagger is built on the embedder's device. It holds the embedder
            itself, not a copy, so an encoder that trains belongs to one tagger.
        tags: The tag set in the order of its ids; the sorted tags of `train` if None.
        prepare: The steps that prepare a sentence's words, as in `SequenceTagger`.

    Returns:
        The untrained tagger; ``fit(tagger, train, dev)`` trains it as for the reported scores.

    Raises:
        ValueError: If `train` has no sentence with a word and a known tag, or a source of `words`
            knows no word of `train`.
        TypeError: If `contextual` is not a word embedder, or `tags` is a set, which has no order.

    Example:
        >>> from polyembed.data import load_sample
        >>> train = load_sample("es-en", "train")
        >>> tagger = build_tagger(train)
        >>> [len(tags) for tags in tagger.predict([["me", "gusta", "that", "song"]])]
        [4]
    """
    sentences = list(train)
    fits = isinstance(contextual, WordEmbedder | None)
    require_type(fits, "contextual", "be a contextual embedder", contextual)
    texts = prepared_by(prepare, [sentence.words for sentence in sentences])
    lexicon = Lexicon.from_sentences(texts)
    if tags is None:
        given = (tag for sentence in sentences for tag in sentence.tags)
        tags = sorted(set().union(*map(options_of, given)) - {None, MISSING_TAG})
        require(bool(tags), "train", "hold at least one known tag", "none")
    tags = check_names("tags", tags)
    parts: dict[str, Any] = {}
    if words:
        sources = [SourceEmbedding(source, lexicon) for source in words]
        for i, source in enumerate(sources):
            known = bool(source.weight.any())
            require(known, f"words[{i}]", "have a vector of a word of train", "none")
        dim = max(source.embedding_dim for source in sources)
        parts["words"] = MetaEmbedding.self_attention(sources, embedding_dim=2 * dim)
    if subwords:
        pieces = [SpelledEmbedding.from_pieces(source, lexicon) for source in subwords]
        dim = max(source.embedding_dim for source in pieces)
        parts["subwords"] = MetaEmbedding.self_attention(pieces, embedding_dim=dim)
    buckets = min(MOST_BUCKETS, 1 << (3 * len(lexicon)).bit_length())
    cnn = CharCNN(lexicon.num_characters, embedding_dim=100, dropout=0.25)
    parts["characters"] = SpelledEmbedding.from_characters(lexicon, cnn)
    parts["surface"] = SpelledEmbedding.from_surface(lexicon, num_buckets=buckets)
    members: list[WordEmbedder] = [UniqueWords(HierarchicalMetaEmbedding(**parts))]
    if contextual is not None:
        fusion = getattr(contextual, "fusion", None)
        own = set() if fusion is None else set(fusion.parameters())
        trained = (p for p in contextual.parameters() if p.requires_grad and p.dim() > 1)
        frozen = own.issuperset(trained)  # no matrix outside its fusion trains
        members.append(
            MetaEmbedding.linear([contextual], embedding_dim=FROZEN_DIM) if frozen else contextual
        )
    dim = sum(member.embedding_dim for member in members)
    lstm = LSTMSequenceEncoder(dim, hidden_size=128, dropout=0.4)
    encoder = WideAndDeepEncoder(lstm, len(tags))
    scores = surface_scores(lexicon, len(tags), num_buckets=buckets)
    embedder = MetaEmbedding.concat([*members, scores])
    decoder = CRFDecoder(encoder.embedding_dim, tags, extra_emissions=True)
    tagger = SequenceTagger(embedder, tags, encoder=encoder, decoder=decoder, prepare=prepare)
    places = {value.device for value in contextual.parameters()} if contextual is not None else ()
    return tagger.to(places.pop()) if len(places) == 1 else tagger
