"""Masked language modelling: adapting an encoder to text."""

import copy
import math
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from polyembed._checks import require
from polyembed.training.masked_text import Example, ExampleEncoder, Texts, read_texts

if TYPE_CHECKING:
    from transformers import TrainingArguments


NO_LANGUAGE = frozenset(
    {None, "", "_", "OTHER", "other", "rest", "eng&spa", "ne", "ambiguous", "unk"}
)
"""Tags of words that have no language, in SAGT's ``CSID`` and in LinCE."""


class AdaptationResult(NamedTuple):
    """The result of an adaptation; the model holds the last step's weights.

    Attributes:
        losses: The mean masked-LM losses in nats: one per `logging_steps` steps, or one over all
            steps of this call if they are fewer. With a folder, the losses of the steps before an
            interruption are among them.
        steps: The number of steps of the optimiser.
    """

    losses: tuple[float, ...]
    steps: int


def _masked_batch(
    rows: Sequence[dict[str, Any]], collator: Any, mlm_probability: float, whole_word_mask: bool
) -> dict[str, Tensor]:
    """Mask a batch of examples, and pad it: ``input_ids``, ``attention_mask``, ``labels``.

    Which pieces are masked is drawn here, anew for each batch; transformers'
    `DataCollatorForLanguageModeling` does the rest: of the masked pieces, 80 % become the mask
    piece, 10 % random pieces, and 10 % stay (Devlin et al. 2019). If chance draws no piece of a
    batch, one piece is masked.
    """
    examples: list[Example] = [row["example"] for row in rows]
    drawn = [_draw(example, mlm_probability, whole_word_mask) for example in examples]
    if not torch.cat(drawn).any():  # the mean over no piece would be NaN
        row = int(torch.randint(len(examples), ()))
        places = [i for i, special in enumerate(examples[row].special) if not special]
        drawn[row][places[int(torch.randint(len(places), ()))]] = True
    # every piece that was not drawn is marked as special for transformers' collator
    features = [
        {"input_ids": example.ids, "special_tokens_mask": (~row).long().tolist()}
        for example, row in zip(examples, drawn, strict=True)
    ]
    return dict(collator(features))


def _draw(example: Example, mlm_probability: float, whole_word_mask: bool) -> Tensor:
    """Draw the pieces of an example to mask."""
    size = len(example.ids)
    share: float | Tensor = mlm_probability
    chance = torch.rand(size)
    if whole_word_mask:
        words = [size if word is None else word for word in example.words]
        chance = torch.rand(size + 1)[words]
    elif example.priority:
        first = torch.tensor(example.priority)
        count, wanted = int(first.sum()), mlm_probability * example.size
        share_first = min(1.0, wanted / max(count, 1))
        rest = (wanted - share_first * count) / max(example.size - count, 1)
        share = torch.where(first, share_first, rest)
    return (chance < share) & ~torch.tensor(example.special).bool()


def adapt_masked_lm(
    model: nn.Module,
    tokenizer: Any,
    texts: Texts,
    args: "TrainingArguments | None" = None,
    *,
    mlm_probability: float = 0.15,
    whole_word_mask: bool = False,
    mask_switches: bool = False,
    max_length: int = 128,
    truncation: bool = False,
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> AdaptationResult:
    r"""Continue the training of a masked language model on `texts`, by transformers' `Trainer`.

    .. math:: L = -\frac{1}{|M|} \sum_{i \in M} \log p(x_i \mid \tilde{x})

    over a batch, where each piece is in M with probability `mlm_probability` and x~ has, in the
    places of M, 80 % mask pieces, 10 % random pieces and 10 % the pieces themselves (Devlin et al.
    2019; on code-switched text: 2503.07990, section "Method Summary"). Masks are drawn anew in each
    epoch. With `whole_word_mask`, words are drawn and all their pieces are masked.

    With `mask_switches`, the pieces of both words at a switch of language are masked with priority
    (after Das et al. 2023). Words without a language between the two, such as punctuation, are
    skipped. If k of n pieces belong to words at a switch, each of the k is in M with probability
    ``q = min(1, n p / k)`` and each other piece with ``(n p - k q) / (n - k)``, where p is
    `mlm_probability`. The expected number of pieces in M is n p, as without `mask_switches`.

    The loss of a step is the mean of its batches' losses, where the arguments accumulate several.
    An example holds one text. A text longer than `max_length` becomes several examples; with
    `truncation` its tail is dropped. Texts without a piece are left out, as are lone surrogates.
    All examples are in memory.

    Args:
        model: A transformers model for masked language modelling.
        tokenizer: The model's tokenizer; it must be fast and have a mask piece.
        texts: Strings; a path or a sequence of `Path`, of files with a text per line (``.xz``,
            ``.gz`` and ``.bz2`` are opened as such); or a function that returns an iterable. A bare
            string is a path. With `mask_switches`, texts are objects with ``words`` and
            ``languages``.
        args: The epochs or steps, batch size, learning rate, schedule, precision, device, seed,
            ``logging_steps``, ``save_steps`` and so on; transformers' defaults if None, with seed 0
            and a loss every 50 steps. Evaluation, reports and uploads are switched off.
        mlm_probability: The probability with which a piece, or a word, is masked.
        whole_word_mask: Whether all pieces of a word are masked together.
        mask_switches: Whether words at or next to a switch of language are masked with priority.
        max_length: The largest number of pieces of an example, special ones included.
        truncation: Whether the rest of a longer text is dropped.
        folder: A folder for the Trainer's checkpoints. If it holds one, the Trainer continues from
            there, even with other texts and arguments, so use one folder per adaptation. Only
            ``save_strategy="epoch"`` gives the numbers of an uninterrupted run. No checkpoint is
            written if None.
        progress: Whether to show a progress bar; if None, only on a terminal.

    Returns:
        The losses and the number of steps.

    Raises:
        ImportError: If accelerate, which the Trainer needs, is missing.
        ValueError: If no text has a piece; if an option is out of range; or if the loss does not
            stay finite.
        TypeError: If the model has no masked-LM head, the tokenizer is slow, or texts are not
            strings.
        FileNotFoundError: If a file does not exist.

    Example:
        >>> from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast
        >>> from transformers import TrainingArguments
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from polyembed.training import perplexity
        >>> words = ["[PAD]", "[UNK]", "[MASK]", "me", "gusta", "that", "song"]
        >>> vocabulary = {word: i for i, word in enumerate(words)}
        >>> core = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        >>> core.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, **special)
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> model = BertForMaskedLM(BertConfig(vocab_size=7, intermediate_size=8, **sizes))
        >>> texts = ["me gusta that song"] * 16
        >>> before = perplexity(model, tokenizer, texts)
        >>> args = TrainingArguments(num_train_epochs=10, learning_rate=0.01, use_cpu=True)
        >>> result = adapt_masked_lm(model, tokenizer, texts, args)
        >>> result.steps, perplexity(model, tokenizer, texts) < before
        (20, True)

    Deviations: the paper truncates texts at 128 pieces; here the rest becomes further examples. It
    does not name the learning rate, the schedule, the order of texts, nor the shares of mask,
    random and kept pieces. It masks no switches with priority, and the formula above is not Das et
    al.'s.
    """
    from transformers import (
        DataCollatorForLanguageModeling,
        PrinterCallback,
        Trainer,
        TrainingArguments,
    )
    from transformers.trainer_utils import IntervalStrategy, SaveStrategy, get_last_checkpoint

    require(0 < mlm_probability < 1, "mlm_probability", "be between 0 and 1", mlm_probability)
    both = whole_word_mask and mask_switches
    require(not both, "whole_word_mask", "be False with mask_switches", whole_word_mask)
    encoder = ExampleEncoder(model, tokenizer, max_length=max_length, truncation=truncation)
    given = read_texts(texts)
    examples = list(_at_switches(encoder, given) if mask_switches else encoder.texts(given))
    require(bool(examples), "texts", "hold at least one text with a piece", "none")
    args = TrainingArguments(seed=0, logging_steps=50) if args is None else copy.copy(args)
    with tempfile.TemporaryDirectory() as scratch, _restored(model):
        args.output_dir = str(scratch if folder is None else folder)
        if folder is None:
            args.save_strategy = SaveStrategy.NO
        args.eval_strategy, args.eval_on_start = IntervalStrategy.NO, False
        args.load_best_model_at_end = False
        args.report_to, args.push_to_hub = [], False
        args.remove_unused_columns, args.logging_nan_inf_filter = False, False
        args.disable_tqdm = not (sys.stderr.isatty() if progress is None else progress)
        args.dataloader_pin_memory &= torch.cuda.is_available()
        args._n_gpu = min(args.n_gpu, 1)  # several visible GPUs would otherwise share a batch
        collate = partial(
            _masked_batch,
            collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=1.0),
            mlm_probability=mlm_probability,
            whole_word_mask=whole_word_mask,
        )
        rows = [{"input_ids": one.ids, "example": one} for one in examples]
        trainer = Trainer(model=model, args=args, train_dataset=rows, data_collator=collate)
        trainer.remove_callback(PrinterCallback)  # it writes to stdout
        # most models return a mean whatever they are told, so the Trainer has to divide it
        trainer.model_accepts_loss_kwargs = False
        os.makedirs(args.output_dir, exist_ok=True)
        last = get_last_checkpoint(args.output_dir)  # type: ignore[no-untyped-call]
        outcome = trainer.train(resume_from_checkpoint=last)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    finite = all(map(math.isfinite, [*losses, outcome.training_loss]))
    require(finite, "loss", "stay finite", losses or outcome.training_loss)
    return AdaptationResult(
        tuple(losses or filter(None, [outcome.training_loss])), outcome.global_step
    )


def _at_switches(encoder: ExampleEncoder, sentences: Sequence[Any]) -> Iterator[Example]:
    """Yield the examples of sentences, with priority for pieces at or next to a switch."""
    for number, sentence in enumerate(sentences):
        languages: Any = getattr(sentence, "languages", None)
        fits = languages is not None and len(languages) == len(sentence.words)
        rule = f"have words and a language for each of them (texts[{number}])"
        require(fits, "a sentence", rule, f"languages {languages}")
        spoken = [(i, x) for i, x in enumerate(languages) if x not in NO_LANGUAGE]
        # the words on both sides of each switch
        near = {k for (i, x), (j, y) in pairwise(spoken) if x != y for k in (i, j)}
        for first, part in encoder.words(sentence.words, f"texts[{number}]"):
            if part.size:
                priority = [i is not None and first + i in near for i in part.words]
                yield part._replace(priority=priority)
            if encoder.truncation:
                break


@contextmanager
def _restored(model: Any) -> Iterator[None]:
    """Restore the device, settings and random states that a Trainer changes; drop its gradients."""
    home = next(model.parameters()).device
    # accelerate's `forward` under autocast, and its mark, by which it would leave the model alone
    added = {"forward", "_original_forward", "_is_accelerate_prepared"} - vars(model).keys()
    hooked = getattr(model, "_require_grads_hooks", None)  # of gradient checkpointing
    settings = [
        (part, name, getattr(part, name))
        for part in (model.config, *model.modules())
        for name in ("training", "gradient_checkpointing", "use_cache")
        if hasattr(part, name)
    ]
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        for part, name, value in settings:
            setattr(part, name, value)
        for name in added:
            vars(model).pop(name, None)
        if not hooked:
            model.disable_input_require_grads()
        model.to(home)
        model.zero_grad(set_to_none=True)
