"""How well a masked language model predicts words where the language switches, and elsewhere."""

from collections.abc import Iterable
from statistics import fmean
from typing import Any

import torch
from torch import nn

from polyembed.data import TaggedSentence
from polyembed.text import align_words

NO_LANGUAGE = {"_", "OTHER", "other", "rest", "eng&spa", "ne", "ambiguous", "unk"}
"""Tags of words that have no language, in SAGT's ``CSID`` and in LinCE."""


def kinds_of(sentence: TaggedSentence) -> list[str | None]:
    """Return for each word whether it is a ``"switch"`` of language or the ``"rest"``.

    A word is a switch if its language differs from the previous language-tagged word's. A word
    without a language is neither: None.
    """
    kinds: list[str | None] = []
    last = None
    for language in sentence.languages or ():
        if language in NO_LANGUAGE:
            kinds.append(None)
            continue
        kinds.append("rest" if last in (None, language) else "switch")
        last = language
    return kinds


@torch.no_grad()
def switch_accuracy(
    model: nn.Module,
    tokenizer: Any,
    sentences: Iterable[TaggedSentence],
    *,
    folds: int = 4,
    max_length: int = 128,
) -> dict[str, float]:
    """Return the accuracy on masked pieces of words at a switch, and of the other words.

    Words without a language count for neither. Every word is masked once, all its pieces together.
    The words i, i + `folds`, i + 2 `folds` and so on are masked in one row. Pieces beyond
    `max_length` are left out.
    """
    training, device = model.training, next(model.parameters()).device
    model.eval()
    hits: dict[str | None, list[float]] = {"switch": [], "rest": [], None: []}
    for sentence in sentences:
        options: Any = {"max_length": max_length, "overflow": "truncate"}
        pieces = align_words([sentence.words], tokenizer, **options)
        [ids], [words] = pieces.piece_ids, pieces.word_index
        masked = torch.stack([(words >= 0) & (words % folds == fold) for fold in range(folds)])
        rows = ids.expand_as(masked).masked_fill(masked, tokenizer.mask_token_id)
        right = model(input_ids=rows.to(device)).logits.argmax(-1).cpu() == ids  # (fold, piece)
        kinds = kinds_of(sentence)
        for fold, place in masked.nonzero().tolist():
            hits[kinds[words[place]]].append(float(right[fold, place]))
    model.train(training)
    return {kind: fmean(hits[kind] or [float("nan")]) for kind in ("switch", "rest")}
