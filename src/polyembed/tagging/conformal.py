"""Sets of tags with a guarantee: split conformal prediction over sentences."""

import math
import warnings
from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from typing import Any, Literal, Self

import torch
from torch import Tensor

from polyembed._checks import check_choice, require, require_type
from polyembed.metrics import entities, scheme_of
from polyembed.saving import PretrainedModule
from polyembed.tagging.decoders import options_of
from polyembed.tagging.tagger import Tagged, Tagger

Unit = Literal["word", "sentence", "entity"]
Score = Literal["adaptive", "probability"]
FEW_UNSEEN = 50  # a new corpus of this many sentences has words that training lacks
ROUNDING = 1e-6  # the probabilities of a sentence depend by so much on the others of its batch


class ConformalTagger(PretrainedModule):
    r"""A tagger that returns, for each word, the tags that cannot be excluded.

    A tag is in the set of a word if the tag's nonconformity ``a`` is at most the threshold, up to
    rounding (1e-6). `calibrate` chooses the threshold on ``n`` sentences that were not trained on,
    as the smallest ``t`` with

        (1 + sum_i L_i(t)) / (n + 1) <= error,

    where ``L_i(t)`` is the share of sentence i's words (or entities) whose right tag has ``a > t``,
    or with ``unit="sentence"`` whether there is such a word (Angelopoulos et al. 2024, conformal
    risk control). Then the expected ``L`` of a new sentence is at most `error`, if it and the
    calibration sentences are exchangeable. This expectation over sentences is the only guarantee,
    because the words of a sentence are not exchangeable. The share of covered words over all
    sentences is not guaranteed, only measured.

    The nonconformity of a tag ``y`` follows from the probabilities ``p`` of the word's tags. With
    ``"probability"`` it is ``1 - p(y)``, and a set may be empty. With ``"adaptive"`` it is the sum
    of the ``p`` of all tags that are more probable than ``y``, and the most probable tag, which
    need not be the one that `predict` gives, is always in the set. The nonconformity of an entity
    is ``1 - p(span, type)``, by the exact probability of the span. The tagger's entities are read
    strictly in the scheme of the tags, so convert IOB1 tags by `to_iob2` before training. The
    entities of the calibration sentences are read as `entity_f1` reads them.

    Args:
        tagger: The trained tagger; for entities a `SequenceTagger`.
        threshold: The largest nonconformity in a set.
        error: The share of errors that the threshold was chosen for.
        unit: What the share counts: ``"word"``, ``"sentence"`` or ``"entity"``.
        score: The nonconformity of a word's tag: ``"adaptive"`` or ``"probability"``.

    Raises:
        ValueError: If a choice is unknown, or the error is not between 0 and 1.

    Example:
        >>> from polyembed import Lexicon, SequenceTagger, SourceEmbedding
        >>> from polyembed.data import TaggedSentence
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> words = SourceEmbedding.from_embedding(torch.nn.Embedding(len(lexicon), 8), lexicon)
        >>> tagger = SequenceTagger(words, ["PRON", "VERB"])
        >>> held_out = [TaggedSentence(("me", "gusta"), ("PRON", "VERB"))] * 20
        >>> sets = ConformalTagger.calibrate(tagger, held_out, error=0.1)
        >>> [len(found) for found in sets.predict_sets([["me", "gusta"]])]
        [2]
    """

    def __init__(
        self,
        tagger: Tagger,
        threshold: float,
        *,
        error: float = 0.1,
        unit: Unit = "word",
        score: Score = "adaptive",
    ) -> None:
        check_choice("unit", unit, ("word", "sentence", "entity"))
        check_choice("score", score, ("adaptive", "probability"))
        require(0 < error < 1, "error", "be between 0 and 1", error)
        super().__init__()
        self.tagger: Any = tagger
        self.threshold = threshold
        self.error, self.unit, self.score = error, unit, score

    @classmethod
    def calibrate(
        cls,
        tagger: Tagger,
        sentences: Iterable[Tagged],
        error: float = 0.1,
        *,
        unit: Unit = "word",
        score: Score = "adaptive",
    ) -> Self:
        """Choose the threshold on tagged sentences that the tagger was not trained on.

        If there are 50 sentences or more and the tagger's lexicon has all their words, after the
        tagger's `prepare`, a warning says that sentences from the training data give no guarantee.

        Args:
            tagger: The trained tagger.
            sentences: Tagged sentences; a sentence without a known tag does not count. For
                entities, a sentence does not count if it has no entity, or a tag that is missing or
                a set.
            error: The largest expected share of errors.
            unit: What the share counts.
            score: The nonconformity of a word's tag.

        Returns:
            The conformal tagger with its threshold.

        Raises:
            ValueError: If fewer than ``1 / error - 1`` sentences count, or too many tags or
                entities are of a kind that the tagger never predicts.
            TypeError: If `unit` is ``"entity"`` and the tagger predicts no entities.
        """
        found = cls(tagger, 1.0, error=error, unit=unit, score=score)
        able = unit != "entity" or hasattr(tagger, "predict_entities")
        require_type(able, "tagger", "be a SequenceTagger for entities", tagger)
        items = list(sentences)
        losses = found._losses(items)
        needed = math.ceil(1 / error - 1 - 1e-9)
        rule = f"hold at least {needed} sentences that count for this error"
        budget = error * (len(losses) + 1) - 1
        require(budget > -1e-9, "sentences", rule, len(losses))
        lexicon = tagger.lexicon
        words = tagger.words_of([tagger.text_of(item) for item in items])
        if lexicon is not None and len(items) >= FEW_UNSEEN and all(x in lexicon for x in words):
            warnings.warn(
                "every word of the calibration sentences is in the tagger's lexicon: sentences "
                "that the tagger was trained on give no guarantee",
                stacklevel=2,
            )
        weighed = sorted(chain(*losses), reverse=True)
        found.threshold = -1.0
        spent = 0.0
        for value, group in groupby(weighed, key=lambda pair: pair[0]):
            spent += sum(weight for _, weight in group)
            if spent > budget + 1e-9:
                found.threshold = value
                break
        rule = "have tags that the tagger can predict"
        require(found.threshold < math.inf, "sentences", rule, f"{spent:.1f} sentences without")
        return found

    def _losses(self, items: Sequence[Tagged]) -> list[list[tuple[float, float]]]:
        """Return, for each sentence that counts, its right labels' nonconformity and weight."""
        texts = list(map(self.tagger.text_of, items))
        gold = list(map(self.tagger.labels_of, items))
        found = (self._of_entities if self.unit == "entity" else self._of_words)(texts, gold)
        if self.unit == "sentence":
            found = [sorted(values)[-1:] for values in found]
        return [[(value, 1 / len(values)) for value in values] for values in found if values]

    def _of_words(self, texts: Sequence[Any], gold: Sequence[list[Any]]) -> list[list[float]]:
        """Return the nonconformity of each known tag; for a set of tags, the least of them."""
        ids = {tag: i for i, tag in enumerate(self.tagger.tags)}
        found = []
        for labels, p in zip(gold, self.tagger.predict_probabilities(texts), strict=True):
            rows = zip(labels, self._nonconformity(p).tolist(), strict=True)
            values = [
                min((row[ids[name]] for name in options_of(label) if name in ids), default=math.inf)
                for label, row in rows
                if label is not None
            ]  # a tag that the model lacks is in no set
            found.append(values)
        return found

    def _of_entities(self, texts: Sequence[Any], gold: Sequence[list[Any]]) -> list[list[float]]:
        """Return the nonconformity of each entity."""
        scheme: Any = scheme_of(self.tagger.tags)
        found = []
        spans = self.tagger.predict_entities(texts, min_probability=0.0, overlapping=True)
        for labels, candidates in zip(gold, spans, strict=True):
            known = {(one.label, one.start, one.end): one.probability for one in candidates}
            names = labels if all(isinstance(label, str) for label in labels) else []
            right = entities(names, scheme=scheme)
            found.append([1 - known[one] if one in known else math.inf for one in right])
        return found

    def _nonconformity(self, probabilities: Tensor) -> Tensor:
        """Return each tag's nonconformity at each word, ``(word, tag)``."""
        if self.score == "probability":
            return 1 - probabilities
        values, order = probabilities.sort(dim=-1, descending=True, stable=True)
        return torch.zeros_like(values).scatter(-1, order, values.cumsum(-1) - values)

    def forward(self, probabilities: Tensor) -> Tensor:
        """Return whether each tag is in its word's set, from probabilities ``(*batch, tag)``."""
        return self._nonconformity(probabilities) <= self.threshold + ROUNDING

    def predict_sets(self, texts: Iterable[Any]) -> list[list[Any]]:
        """Return the tags or entities that cannot be excluded, from raw words.

        Args:
            texts: Lists of words, as the tagger's ``predict`` takes them.

        Returns:
            For each text a tuple of tags per word, the most probable first; with ``unit="entity"``
            the entities, which may overlap, the most probable first.
        """
        if self.unit == "entity":
            spans: list[list[Any]] = self.tagger.predict_entities(
                texts,
                min_probability=min(1.0, max(0.0, 1 - self.threshold - ROUNDING)),
                overlapping=True,
            )
            return spans
        tags, found = self.tagger.tags, []
        for probabilities in self.tagger.predict_probabilities(texts):
            order = probabilities.argsort(dim=-1, descending=True, stable=True).tolist()
            pairs = zip(order, self(probabilities).tolist(), strict=True)
            found.append([tuple(tags[i] for i in row if kept[i]) for row, kept in pairs])
        return found
