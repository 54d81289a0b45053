"""The tagger of van der Heijden 2019 over any word vectors, and the options of its training.

Both are built from the recipes.
"""

from collections import Counter
from typing import Any

import torch
from _recipes import RECIPES as ALL
from _recipes import check_keys
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR

import polyembed as pe
from polyembed.metrics import Labels, check_labels, split_label
from polyembed.tables import Table
from polyembed.training import FitOptions

RECIPES = ALL["laser2019"]
KINDS = ("baselines", "laser", "transformers")
OPTIMIZER = ("optimizer", "learning_rate", "momentum", "weight_decay", "schedule")
RISE = 0.3  # the share of a cycle in which the learning rate rises


def check_recipe() -> None:
    """Exit if the recipe has a section or a key that is not used."""
    check_keys("laser2019", RECIPES, None, ("pretrained", "normalizer", "encoder", *KINDS))
    check_keys("laser2019.normalizer", RECIPES["normalizer"], pe.Normalizer)
    check_keys("laser2019.encoder", RECIPES["encoder"], pe.TransformerSequenceEncoder)
    for kind in KINDS:
        check_keys(f"laser2019.{kind}", RECIPES[kind], None, ("training", "search"))
        check_keys(f"laser2019.{kind}.training", RECIPES[kind]["training"], FitOptions, OPTIMIZER)
    searched = RECIPES["laser"]["search"]
    check_keys(
        "laser2019.laser.search",
        searched,
        None,
        (*RECIPES["encoder"], *RECIPES["laser"]["training"]),
    )


def build_tagger(words: torch.nn.Module, tags: list[str], **changes: Any) -> pe.SequenceTagger:
    """Build the paper's Transformer and CRF over a word embedder.

    `changes` replace arguments of the recipe's encoder.
    """
    encoder = pe.TransformerSequenceEncoder(
        int(words.embedding_dim), **{**RECIPES["encoder"], **changes}
    )
    return pe.SequenceTagger(words, tags, encoder=encoder)


def build_transformer_tagger(words: pe.PretrainedWordEncoder, tags: list[str]) -> pe.SequenceTagger:
    """Build a tagger with a linear layer over BERT or XLM, without dropout before the layer."""
    decoder = pe.SoftmaxDecoder(words.embedding_dim, len(tags))
    return pe.SequenceTagger(words, tags, decoder=decoder)


def training_options(recipe: str, num_sentences: int, **changes: Any) -> FitOptions:
    """Turn a recipe into options of `fit`, `run_zero_shot` and `run_joint`.

    Args:
        recipe: The section of the recipe: ``"baselines"``, ``"laser"`` or ``"transformers"``.
        num_sentences: The size of the training set. The 1-cycle policy must know the number of
            steps in advance.
        **changes: The options that replace the recipe's.

    Returns:
        The options.
    """
    given = {**RECIPES[recipe]["training"], **changes}
    name, rate, momentum, decay, schedule = (given.pop(key, None) for key in OPTIMIZER)
    if given["max_grad_norm"] == "none":
        given["max_grad_norm"] = None
    rest = {"weight_decay": decay or 0.0} | ({} if momentum is None else {"momentum": momentum})

    def optimizer(tagger: pe.SequenceTagger) -> Optimizer:
        # an L2 penalty in the gradient shrinks every row of a table at every step, also rows
        # outside the batch: the rows of a language without training sentences would vanish
        tables = {part.weight for part in tagger.modules() if isinstance(part, torch.nn.Embedding)}
        trainable = {parameter for parameter in tagger.parameters() if parameter.requires_grad}
        groups = [
            {"params": [p for p in tagger.parameters() if p in trainable - tables]},
            {
                "params": [p for p in tagger.parameters() if p in trainable & tables],
                "weight_decay": 0.0,
            },
        ]
        return getattr(torch.optim, name)(
            [group for group in groups if group["params"]], lr=rate, **rest
        )

    def one_cycle(optimizer: Optimizer) -> LRScheduler:
        steps = given["num_train_epochs"] * -(-num_sentences // given["batch_size"])
        return OneCycleLR(optimizer, rate, total_steps=steps, pct_start=RISE)

    cycle = (
        {"scheduler": one_cycle, "scheduler_interval": "step"} if schedule == "one_cycle" else {}
    )
    return FitOptions(**given, optimizer=optimizer, **cycle)


def bio_confusion(gold: Labels, predicted: Labels, *, normalize: bool = False) -> Table:
    """Count how often words labelled B, I or O are predicted as each of the three labels.

    See figure 5 of van der Heijden 2019. With ``trim(B-x) = B``, ``trim(I-x) = I`` and
    ``trim(O) = O``::

        counts[g, p] = #{words: trim(gold) = g and trim(predicted) = p}
        normalised: counts[g, p] / sum(counts[g, :]), or 0.0 if no gold label is g

    Args:
        gold: The right labels of each sentence: O, B-<type> and I-<type>.
        predicted: The predicted labels of each sentence.
        normalize: Whether to return shares of each row instead of counts.

    Returns:
        A table with a row per gold label and a column per predicted label; the first column has the
        name of the gold label.

    Example:
        >>> gold, predicted = [["B-PER", "I-PER", "O", "B-LOC"]], [["B-LOC", "O", "O", "B-LOC"]]
        >>> table = bio_confusion(gold, predicted)
        >>> print(table.to_markdown())
        | gold | B   | I   | O   |
        | ---- | --- | --- | --- |
        | B    | 2   | 0   | 0   |
        | I    | 0   | 0   | 1   |
        | O    | 0   | 0   | 1   |

    Deviations: the paper's picture does not say whether it shows counts or shares.
    """
    check_labels({"gold": gold, "predicted": predicted}, empty=False)
    pairs = Counter(
        (split_label(label)[0], split_label(other)[0])
        for right, guess in zip(gold, predicted, strict=True)
        for label, other in zip(right, guess, strict=True)
    )
    rows: list[tuple[Any, ...]] = []
    for label in "BIO":
        counts = [pairs[label, other] for other in "BIO"]
        total = sum(counts) or 1
        rows.append((label, *(count / total if normalize else count for count in counts)))
    return Table(("gold", "B", "I", "O"), rows)
