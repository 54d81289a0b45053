"""The library's models in the `Trainer` of transformers: arguments, batches, metrics and folders as
it expects them.

A loop of your own, Accelerate and Lightning Fabric call a model directly and do not need this
module.
"""

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from polyembed._checks import check_choice, class_name, must, require
from polyembed.functional.losses import IGNORE_INDEX
from polyembed.metrics import MetricName
from polyembed.saving.writing import tied_names
from polyembed.tagging.classifiers import PairClassifier, TextClassifier
from polyembed.tagging.tagger import SequenceTagger, Tagger
from polyembed.tagging.text_model import TextModel
from polyembed.training._packing import pack, unpack
from polyembed.training.scoring import METRICS, measure

PREFIX = "model."
PREDICTIONS = ("decoded", "probabilities")


class TrainerModel(nn.Module):
    """A tagger or a classifier as the `Trainer` of transformers calls it; made by
    `wrap_for_trainer`.

    Its state has the names of the model inside, and each shared tensor once, since safetensors
    refuses shared memory. So what a trainer writes is what `save_pretrained` writes.

    Args:
        model: The model inside, which is trained.
        predictions: What `logits` holds in evaluation mode.
    """

    def __init__(
        self, model: TextModel, *, predictions: Literal["decoded", "probabilities"]
    ) -> None:
        super().__init__()
        self.model = model
        self.predictions = predictions
        self.register_state_dict_post_hook(_give_state)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_take_state)  # type: ignore[no-untyped-call]

    def forward(self, inputs: Any, mask: Tensor | None = None, labels: Tensor | None = None) -> Any:
        """Compute the loss, and in evaluation mode the predictions.

        Args:
            inputs: The model's inputs, as `DataCollatorForWords` packs them.
            mask: True = a word.
            labels: Ids of tags ``(batch, word)`` or labels ``(batch)``, -100 without one; without
                them there is no loss.

        Returns:
            A `TokenClassifierOutput` or `SequenceClassifierOutput` of transformers: ``loss``, and
            in evaluation mode
            ``logits``: ids of the shape of `labels`, -100 at padding, or probabilities with one
                axis more.
        """
        from transformers.modeling_outputs import SequenceClassifierOutput, TokenClassifierOutput

        inputs = unpack(inputs)
        output = (
            TokenClassifierOutput if isinstance(self.model, Tagger) else SequenceClassifierOutput
        )
        if self.training:
            return output(loss=None if labels is None else self._loss(inputs, mask, labels))
        loss, found = self._evaluate(inputs, mask, labels)
        return output(loss=loss, logits=found)

    def _loss(self, inputs: Any, mask: Tensor | None, labels: Tensor) -> Tensor:
        named = {"tags" if isinstance(self.model, Tagger) else "labels": labels}
        loss: Tensor = self.model(inputs, mask=mask, **named)
        return loss

    def _evaluate(
        self, inputs: Any, mask: Tensor | None, labels: Tensor | None
    ) -> tuple[Tensor | None, Tensor]:
        """Return loss and predictions, both from the same features where the model has any."""
        model: Any = self.model
        wants = "decode" if self.predictions == "decoded" else "probabilities"
        if isinstance(model, SequenceTagger):
            features = model.features(inputs, mask)
            loss = None if labels is None else model.decoder.loss(features, labels, mask)
            return loss, getattr(model.decoder, wants)(features, mask)
        if isinstance(model, TextClassifier):
            logits = model.logits(inputs, mask)
            loss = None if labels is None else model.criterion(logits, labels)
            wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
            return loss, logits.argmax(-1) if wants == "decode" else wide.softmax(-1)
        return None if labels is None else self._loss(inputs, mask, labels), getattr(model, wants)(
            inputs, mask
        )


def wrap_for_trainer(
    model: TextModel, *, predictions: Literal["decoded", "probabilities"] = "decoded"
) -> TrainerModel:
    """Wrap a tagger or a classifier for the `Trainer` of transformers; the model inside is the one
    that is trained.

    With `DataCollatorForWords` as the ``data_collator``, each folder that the trainer writes
    (``save_model``, a checkpoint) is one that `from_pretrained` of the model's class opens, and one
    that the trainer resumes from.

    In evaluation mode the predictions are decoded, ids like the labels: a CRF's best path is not
    the argmax of any score of single words. They are padded with -100, as the trainer pads, so
    ``compute_metrics`` compares ids with ids where the label is not -100; `trainer_metrics` does.

    Args:
        model: A `SequenceTagger` or `TokenClassifier`, a `SequenceClassifier` or a
            `PairClassifier`, or a `VotingEnsemble` (all members train on all batches).
        predictions: ``"decoded"``: ids; ``"probabilities"``: of each tag or label (a CRF's
            marginals).

    Returns:
        A module for ``Trainer(model=...)``.

    Raises:
        TypeError: Another module.

    Example:
        >>> from polyembed import Lexicon, SequenceTagger, SourceEmbedding
        >>> from polyembed.data import TaggedSentence
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> words = SourceEmbedding.from_embedding(nn.Embedding(4, 8), lexicon)
        >>> tagger = SequenceTagger(words, ["X", "VERB"])
        >>> batch = DataCollatorForWords(tagger)([TaggedSentence(("me", "gusta"), ("X", "VERB"))])
        >>> sorted(batch)
        ['inputs', 'labels', 'mask']
        >>> wrap_for_trainer(tagger).eval()(**batch).logits.shape
        torch.Size([1, 2])
    """
    check_choice("predictions", predictions, PREDICTIONS)
    _check_model(model)
    return TrainerModel(model, predictions=predictions)


class DataCollatorForWords:
    """Batches of words for a model that `wrap_for_trainer` has wrapped: ``inputs``, ``mask`` and
    ``labels``.

    Rows are what `fit` takes (objects with ``words`` and ``tags``; ``words`` and ``label``;
    ``first``, ``second`` and ``label``), or mappings with these keys, as `datasets` gives them:
    then set ``remove_unused_columns=False`` in the training arguments. Rows without tags or labels
    make a batch without ``labels``, to predict.

    Inputs of several parts (`Pieces`, a tuple) are nested dicts of tensors, which every trainer can
    move to a device.

    Words that the model's lexicon does not hold are unknown here, in training and in evaluation,
    while `predict` gives them vectors of their own. A model that ``model.with_words(words)`` returns
    knows the development set's words too.

    Args:
        model: The tagger or classifier, wrapped or not.

    Raises:
        TypeError: Another module, or rows that are not texts.
        ValueError: Rows of which some have labels and some have none, or a tag or label outside the
            set.

    Example:
        >>> from polyembed import Lexicon, SequenceTagger, SourceEmbedding
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> words = SourceEmbedding.from_embedding(nn.Embedding(4, 8), lexicon)
        >>> tagger = SequenceTagger(words, ["X", "VERB"])
        >>> DataCollatorForWords(tagger)([{"words": ["me", "gusta"], "tags": ["X", "VERB"]}])["labels"]
        tensor([[0, 1]])
    """

    def __init__(self, model: TextModel | TrainerModel) -> None:
        inside = model.model if isinstance(model, TrainerModel) else model
        _check_model(inside)
        self.model = inside
        self.tokenizer = _Folder(inside)  # what a trainer saves beside the weights

    def __call__(self, rows: Sequence[Any]) -> dict[str, Any]:
        """Build a batch.

        Args:
            rows: Texts, labelled or not.

        Returns:
            The arguments of `TrainerModel`.
        """
        model = self.model
        key = "tags" if isinstance(model, Tagger) else "label"
        needed = ("first", "second") if isinstance(model, PairClassifier) else ("words",)
        items = [SimpleNamespace(**row) if isinstance(row, Mapping) else row for row in rows]
        for number, item in enumerate(items):
            missing = [name for name in needed if not hasattr(item, name)]
            if missing:
                rule = f"have {' and '.join(needed)} (a Trainer drops columns unless remove_unused_columns=False)"
                found = rows[number]
                got = (
                    f"the keys {sorted(found)}" if isinstance(found, Mapping) else class_name(found)
                )
                raise TypeError(must(f"rows[{number}]", rule, got))
        labelled = [getattr(item, key, None) is not None for item in items]
        require(
            len(set(labelled)) < 2,
            "rows",
            f"all have {key}, or none of them",
            f"{sum(labelled)} of {len(rows)}",
        )
        if all(labelled):
            batch = model.collate(items)
            batch["labels"] = batch.pop("tags" if key == "tags" else "labels")
        else:
            inputs, mask = model.encode([model.text_of(item) for item in items])
            batch = {"inputs": inputs, "mask": mask}
        return {name: pack(value) for name, value in batch.items() if value is not None}


def trainer_metrics(
    model: TextModel | TrainerModel, metrics: Sequence[MetricName] | None = None
) -> Callable[[Any], dict[str, float]]:
    """Return the ``compute_metrics`` of a wrapped model: the scores that `fit` computes for the
    same predictions.

    Args:
        model: The tagger or classifier, wrapped or not.
        metrics: ``"f1"`` (entity micro-F1 as conlleval counts), ``"accuracy"``, ``"macro_f1"``; the
            model's default (a tagger's ``"f1"``, a classifier's ``"accuracy"``) if None.

    Returns:
        A function of the trainer's predictions and labels to scores by name.

    Raises:
        ValueError: No such metric; from the function: predictions of another shape than the labels.
        TypeError: Another module.

    Example:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from polyembed import Lexicon, SequenceTagger, SourceEmbedding
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> words = SourceEmbedding.from_embedding(nn.Embedding(4, 8), lexicon)
        >>> tagger = SequenceTagger(words, ["O", "B-LOC"])
        >>> score = trainer_metrics(tagger, ["f1", "accuracy"])
        >>> score(SimpleNamespace(predictions=np.array([[1, 0, -100]]), label_ids=np.array([[1, 1, -100]])))
        {'f1': 0.6666666666666666, 'accuracy': 0.5}
    """
    inside: Any = model.model if isinstance(model, TrainerModel) else model
    _check_model(inside)
    chosen = [inside.default_metric] if metrics is None else list(metrics)
    for name in chosen:
        check_choice("metrics", name, METRICS)
    names = inside.tags if isinstance(inside, Tagger) else inside.labels

    def compute_metrics(found: Any) -> dict[str, float]:
        predicted, gold = found.predictions, found.label_ids
        if predicted.ndim == gold.ndim + 1:  # probabilities
            predicted = predicted.argmax(-1)
        same = predicted.shape == gold.shape
        require(
            same,
            "predictions",
            f"have the labels' shape {tuple(gold.shape)}",
            tuple(predicted.shape),
        )
        counts = gold != IGNORE_INDEX
        rule = "be a tag for each word (scores of NaN, or all forbidden, give none)"
        require(bool((predicted[counts] >= 0).all()), "predictions", rule, IGNORE_INDEX)
        right, said = [], []
        for row, guess, real in zip(gold, predicted, counts, strict=True):
            right.append([names[i] for i in row[real].flatten().tolist()])
            said.append([names[i] for i in guess[real].flatten().tolist()])
        return {name: measure(name, right, said) for name in chosen}

    return compute_metrics


class _Folder:
    """The tokenizer that a trainer saves beside the weights: writes the rest of `save_pretrained`."""

    def __init__(self, model: TextModel) -> None:
        self.model = model

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write all that the model needs, except files of pretrained vectors, which may be of several GB."""
        try:
            self.model.save_pretrained(folder, save_sources=True, copy_vectors=False)
        except TypeError as error:  # a training must not end for it
            text = f"{os.fspath(folder)} holds weights alone, which from_pretrained does not open: {error}"
            warnings.warn(text, stacklevel=2)


def _check_model(model: object) -> None:
    if not isinstance(model, TextModel):
        raise TypeError(
            must("model", "be a tagger or a classifier of this library", class_name(model))
        )


def _give_state(module: nn.Module, state: dict[str, Any], prefix: str, local_metadata: Any) -> None:
    """Rename the state as in the model inside, each tensor once."""
    inside: Any = module.model
    tied = tied_names(inside)
    start = prefix + PREFIX
    for key in [key for key in state if key.startswith(start)]:
        name, value = key.removeprefix(start), state.pop(key)
        if name not in tied:
            state[prefix + name] = value if value.is_contiguous() else value.contiguous()


def _take_state(
    module: nn.Module,
    state: dict[str, Any],
    prefix: str,
    local_metadata: Any,
    strict: bool,
    *reports: list[str],
) -> None:
    """Rename a state of `_give_state` or `save_pretrained` as the module expects it."""
    inside: Any = module.model
    names, tied = list(inside.state_dict()), tied_names(inside)
    given = {name: state.pop(prefix + name) for name in names if prefix + name in state}
    for name in names:
        source = name if name in given else tied.get(name)
        if source in given:
            state[prefix + PREFIX + name] = given[source]
