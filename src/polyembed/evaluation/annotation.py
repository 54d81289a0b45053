"""The choice of the texts to annotate next."""

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from polyembed._batches import chunked
from polyembed._checks import check_choice, check_positive, check_sentences, require, require_type
from polyembed._views import evaluation_view
from polyembed.functional import masked_mean, vote_entropy
from polyembed.functional.alignment import unit
from polyembed.tagging import CRFDecoder, SequenceTagger, VotingEnsemble, to_device
from polyembed.tagging.tagger import Tagger

RULES = ("entropy", "margin", "vote", "length-normalised")
CANDIDATES = 5  # `diverse` chooses among this many times `count` of the most uncertain texts


def rank_for_annotation(
    model: Tagger,
    texts: Iterable[Sequence[str]],
    *,
    by: Literal["entropy", "margin", "vote", "length-normalised"] = "entropy",
    count: int | None = None,
    diverse: bool = False,
    batch_size: int = 64,
) -> list[int]:
    """Order texts by how much a model would learn from their tags, the most first.

    The score of a text of ``n`` words, with ``p`` the probability of a sequence of tags and ``y``
    the most likely sequence:

    - ``"entropy"``: ``-sum p log p``, exact for a CRF; for other models the sum over the words;
    - ``"margin"``: the difference of the two most likely sequences, the smallest first; for other
      models the mean over the words;
    - ``"length-normalised"``: ``-log p(y) / n`` (Shen et al. 2018), which does not prefer long
      texts;
    - ``"vote"``: the mean entropy of the votes of a `VotingEnsemble` over the words.

    Args:
        model: The trained tagger, or an ensemble.
        texts: Lists of words; empty ones come last.
        by: The rule.
        count: The number of texts to return; all if None.
        diverse: Whether to choose different texts among the ``5 * count`` most uncertain ones: the
            most uncertain text, then each time the text that is farthest from the chosen texts. The
            distance is the cosine distance of the means of their words' vectors (of an ensemble,
            the first member's).
        batch_size: The number of texts per batch.

    Returns:
        The positions of the texts in `texts`, in the order of choice.

    Raises:
        ValueError: If the rule is unknown, or `diverse` comes without `count`.
        TypeError: If the model is not a tagger, or not a `VotingEnsemble` for ``"vote"``.

    Example:
        >>> from polyembed import Lexicon, SourceEmbedding
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> words = SourceEmbedding.from_embedding(torch.nn.Embedding(len(lexicon), 8), lexicon)
        >>> tagger = SequenceTagger(words, ["PRON", "VERB"])
        >>> rank_for_annotation(tagger, [[], ["me", "gusta", "me"]])
        [1, 0]
    """
    check_choice("by", by, RULES)
    check_positive(batch_size=batch_size, count=1 if count is None else count)
    require(count is not None or not diverse, "count", "be given with diverse", None)
    votes = by != "vote" or isinstance(model, VotingEnsemble)
    require_type(votes, "model", "be a VotingEnsemble to rank by votes", model)
    require_type(isinstance(model, Tagger), "model", "be a tagger", model)
    known = check_sentences(texts, name="texts")
    full = [i for i, words in enumerate(known) if words]
    scores = _scores(model, [known[i] for i in full], by, batch_size)
    require(not bool(scores.isnan().any()), "the scores of all texts", "be numbers", "NaN")
    order = [full[i] for i in torch.argsort(scores, descending=True, stable=True).tolist()]
    order += [i for i, words in enumerate(known) if not words]
    if count is None or not diverse:
        return order[:count]
    pool = [i for i in order[: CANDIDATES * count] if known[i]]
    if len(pool) <= count:
        return order[:count]
    one: Any = model.members[0] if isinstance(model, VotingEnsemble) else model
    vectors = _batched(
        lambda one, inputs, mask: unit(masked_mean(one.features(inputs, mask), mask)),
        one,
        [known[i] for i in pool],
        batch_size,
    )
    chosen, nearest = [0], vectors @ vectors[0]
    while len(chosen) < count:  # the text whose nearest chosen text is farthest
        nearest[chosen] = torch.inf
        chosen.append(int(nearest.argmin()))
        nearest = torch.maximum(nearest, vectors @ vectors[chosen[-1]])
    return [pool[i] for i in chosen]


def _scores(model: Any, texts: list[list[str]], by: str, batch_size: int) -> Tensor:
    """Return the uncertainty of each text."""
    if not texts:
        return torch.zeros(0)
    if by == "vote":

        def disagreement(ensemble: Any, inputs: Any, mask: Tensor) -> Tensor:
            votes = ensemble.votes(inputs, mask)
            entropy = vote_entropy(votes).where((votes >= 0).all(0), torch.nan)
            return masked_mean(entropy[..., None], mask)[:, 0]

        return _batched(disagreement, model, texts, batch_size)
    crf = isinstance(model, SequenceTagger) and isinstance(model.decoder, CRFDecoder)
    if crf and by == "entropy":
        return _batched(
            lambda one, inputs, mask: one.decoder.crf.entropy(one.emissions(inputs, mask), mask),
            model,
            texts,
            batch_size,
        )
    if crf:
        best = model.predict_n_best(texts, 2, batch_size=batch_size)
        logs = [[log_prob for _, log_prob in found] for found in best]
        if by == "length-normalised":
            both = zip(logs, texts, strict=True)
            return torch.tensor([-one[0] / len(words) for one, words in both])
        # a missing second sequence has probability 0; the probabilities of long texts underflow
        pairs = torch.tensor([(*one, -inf)[:2] for one in logs], dtype=torch.float64)
        first, second = pairs.unbind(1)
        return -first - torch.log(-torch.expm1(second - first))
    found = []
    for rows in model.predict_probabilities(texts, batch_size=batch_size):
        top = F.pad(rows, (0, 1)).topk(2).values
        found.append(
            {
                "entropy": -torch.special.xlogy(rows, rows).sum(),
                "margin": (top[:, 1] - top[:, 0]).mean(),
                "length-normalised": -top[:, 0].log().mean(),
            }[by]
        )
    return torch.stack(found)


@torch.no_grad()
def _batched(
    compute: Callable[[Any, Any, Tensor], Tensor],
    model: Any,
    texts: list[list[str]],
    batch_size: int,
) -> Tensor:
    """Return the results of `compute` for a model, inputs and mask, one row per text."""
    view = evaluation_view(model.with_words(model.words_of(texts)))
    found = []
    for batch in chunked(texts, batch_size):
        inputs, mask = (to_device(part, model.device) for part in view.encode(batch))
        found.append(compute(view, inputs, mask).cpu())
    return torch.cat(found)
