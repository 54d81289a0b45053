"""Several trainings of one model, and the ensemble that they make."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from polyembed.tagging.ensemble import VotingEnsemble
from polyembed.tagging.tagger import SequenceTagger, Tagged
from polyembed.training.fit import fit
from polyembed.training.options import DEFAULTS, FitOptions
from polyembed.training.state import FitResult


class EnsembleResult(NamedTuple):
    """The result of training an ensemble.

    Attributes:
        ensemble: The members, in the order of their seeds, each with its best epoch's weights; in
            evaluation mode.
        results: The result of each member's training.
    """

    ensemble: VotingEnsemble
    results: tuple[FitResult, ...]


def fit_ensemble(
    build: Callable[[int], SequenceTagger],
    train: Sequence[Tagged],
    dev: Sequence[Tagged],
    options: FitOptions = DEFAULTS,
    *,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    vote: Literal["hard", "soft", "entity"] = "hard",
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> EnsembleResult:
    """Train a member per seed, and let the members vote (HME-Ensemble of Winata 2021).

    Each member is the result of ``fit(build(seed), train, dev, options, seed=seed)``. With a
    `folder`, the same call goes on where an interrupted one stopped; members that are finished are
    read. Several processes that train ``seeds`` of their own in one folder share the work: a last
    call with all seeds reads what they made.

    Args:
        build: A function from a seed to an untrained tagger; it is called with torch's random state
            seeded.
        train: Objects with ``words`` and ``tags``.
        dev: The same, to choose each member's epoch by.
        options: The options of `fit`.
        seeds: A seed per member: of its initial weights, its batches and its dropout.
        vote: How the ensemble votes; see `VotingEnsemble`.
        folder: Where checkpoints of members are kept, in ``member-<seed>``; nowhere if None.
        progress: Whether to show a progress bar; if None, only on a terminal.

    Returns:
        The ensemble and the history of each member.

    Raises:
        ValueError: If `fit` or `VotingEnsemble` raises one.

    Example:
        >>> from polyembed import Lexicon, SourceEmbedding
        >>> from polyembed.data import TaggedSentence
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> def build(seed):
        ...     words = SourceEmbedding.from_embedding(torch.nn.Embedding(4, 8), lexicon)
        ...     return SequenceTagger(words, ["X", "VERB"])
        >>> data = [TaggedSentence(("me", "gusta"), ("X", "VERB"))] * 8
        >>> options = FitOptions(num_train_epochs=1, metric="accuracy")
        >>> len(fit_ensemble(build, data, data, options, seeds=[0, 1]).ensemble.members)
        2
    """
    members, results = [], []
    for seed in seeds:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            member = build(seed)
        place = None if folder is None else Path(folder, f"member-{seed}")
        result = fit(member, train, dev, options, seed=seed, checkpoint=place, progress=progress)
        members.append(member)
        results.append(result)
    return EnsembleResult(VotingEnsemble(members, vote=vote).eval(), tuple(results))
