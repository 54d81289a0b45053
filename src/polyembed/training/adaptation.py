"""Masked language modelling: adapting an encoder to text."""

import copy
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from polyembed._checks import check_positive, import_optional, must, require
from polyembed._fingerprint import describe_model, trained_state
from polyembed.training._masked_batches import MaskedBatches, MaskedStream, make_collator
from polyembed.training._masked_text import (
    ExampleEncoder,
    TextCorpus,
    Texts,
    check_masked_lm,
    check_masking,
)
from polyembed.training._masked_trainer import last_checkpoint, train, untouched
from polyembed.training.runs import Run
from polyembed.training.switch_points import Spoken, SwitchEncoder

if TYPE_CHECKING:
    from transformers import TrainingArguments

NUMBERS = (
    "num_train_epochs",
    "max_steps",
    "per_device_train_batch_size",
    "learning_rate",
    "lr_scheduler_type",
    "lr_scheduler_kwargs",
    "warmup_steps",
    "optim",
    "optim_args",
    "weight_decay",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "max_grad_norm",
    "label_smoothing_factor",
    "neftune_noise_alpha",
    "bf16",
    "fp16",
    "tf32",
    "seed",
    "logging_steps",
    "save_steps",
)
"""The training arguments that change the numbers."""


class AdaptationResult(NamedTuple):
    """The result of an adaptation; the model holds the last step's weights.

    Attributes:
        losses: The mean masked-LM loss, in nats, of each `logging_steps` steps; the last one of the
            rest.
        steps: Steps of the optimiser, over all calls that continued one another.
        tokens: Pieces seen, without special ones and padding; a piece counts again in each epoch.
    """

    losses: tuple[float, ...]
    steps: int
    tokens: int


def adapt_masked_lm(
    model: nn.Module,
    tokenizer: Any,
    texts: Texts | Iterable[Spoken],
    args: "TrainingArguments | None" = None,
    *,
    mlm_probability: float = 0.15,
    whole_word_mask: bool = False,
    mask_switches: bool = False,
    max_length: int = 128,
    truncation: bool = False,
    shuffle_buffer: int = 10_000,
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> AdaptationResult:
    r"""Continue the training of a masked language model on `texts`, by transformers' own `Trainer`
    and data collator.

    .. math:: L = -\frac{1}{|M|} \sum_{i \in M} \log p(x_i \mid \tilde{x})

    over a batch, where each piece is in M with probability `mlm_probability` and x~ has, in the
    places of M, 80 % mask pieces, 10 % random pieces and 10 % the pieces themselves (Devlin et al.
    2019; on code-switched text: 2503.07990, section "Method Summary").

    **Masks** are dynamic: drawn anew for each batch of each epoch. A batch in which chance chose no
    piece gets one. With `whole_word_mask` words are drawn, as the tokenizer's pre-tokenizer splits
    them, and all their pieces replaced by mask pieces (the collator has no 80/10/10 there).

    With `mask_switches`, pieces of words at or next to a switch of language are masked with
    priority (after Das et al. 2023): both words of a switch, as `switch_points` finds it. Of n
    pieces with k of such words, each of the k is in M with probability ``q = min(1, n p / k)``,
    each of the others with ``(n p - k q) / (n - k)``, where p is `mlm_probability`: n p on average,
    as without. A longer sentence is cut between words.

    **Examples**: an example holds one text. A text longer than `max_length` becomes several
    examples; with `truncation` its tail is dropped. Texts without a piece are left out, as are lone
    surrogates.

    **Order**: a sequence is shuffled as a whole each epoch. A stream, that is any other source,
    goes through a buffer of `shuffle_buffer` texts, and the next text is drawn from the buffer. So
    a file that is sorted by language stays roughly sorted unless the buffer is as large as its
    parts. Then ``32 * batch_size`` examples at a time are sorted by length, cut into batches, and
    the batches shuffled, so that there is little padding.

    **Memory**: texts are tokenised when they are needed. Of a stream at most `shuffle_buffer` texts
    and the pieces of 32 batches are held. Without ``max_steps`` the texts are tokenised once
    beforehand, to count the steps.

    **Resuming**: with `folder`, the Trainer saves its state there every ``save_steps`` steps. After
    a kill the same call, with the same initial weights, continues from the last checkpoint and
    reaches the same weights and losses: each step draws its masks and dropout from the seed and its
    own number. A stream is read again up to that point. When finished, the folder holds the last
    weights and the result, and the same call returns at once.

    The caller's random state, the model's device and its modes are restored afterwards. There are
    no reports, and all files are written into `folder`.

    Deviations: the paper truncates texts at 128 pieces; here the rest becomes further examples. It
    does not name the learning rate, the schedule, the order of texts, nor the shares of mask,
    random and kept pieces (the collator's defaults). It masks no switches with priority, and the
    formula above is not Das et al.'s.

    Args:
        model: A transformers model for masked language modelling.
        tokenizer: Its tokenizer, a fast one, with a mask piece.
        texts: A sequence of strings; one path or a sequence of `Path`, of files with one text a
            line (``.xz``, ``.gz`` and ``.bz2`` are opened as such); a function that returns a new
            iterator at each call; or any iterable, one that can only be read once with
            ``max_steps`` and without `folder`. A bare string is a path. With `mask_switches`,
            objects with ``words`` and ``languages`` instead of strings.
        args: Epochs or steps, batch size, learning rate, schedule, precision, device, seed,
            ``logging_steps`` and ``save_steps``; transformers' defaults if None, with seed 0 and a
            loss each 50 steps. What it says about evaluation, reporting, data loading and the
            output folder is not used.
        mlm_probability: The probability with which a piece, or a word, is masked.
        whole_word_mask: Whether all pieces of a word are masked together.
        mask_switches: Whether words at or next to a switch of language are masked with priority.
        max_length: The most pieces of an example, special ones included.
        truncation: Whether the rest of a longer text is dropped.
        shuffle_buffer: Texts of a stream held for shuffling.
        folder: Where to keep checkpoints and the result; None: nowhere.
        progress: Whether to show a progress bar (on stderr); if None, only on a terminal.

    Returns:
        The losses, steps and tokens.

    Raises:
        ImportError: accelerate, which the Trainer needs, is missing.
        ValueError: Nothing to train on, options out of range, a loss that is not finite, a folder
            that is damaged or of another run, or several processes.
        TypeError: A model without a masked-LM head, a slow tokenizer, or texts that are not
            strings.
        FileNotFoundError: A file does not exist.
        RuntimeError: Another process trains in the folder.

    Example:
        >>> from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast, TrainingArguments
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from polyembed.training import perplexity
        >>> words = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[MASK]", "me", "gusta", "that", "song"])}
        >>> core = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
        >>> core.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, **special)
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
        >>> model = BertForMaskedLM(BertConfig(vocab_size=7, **sizes))
        >>> texts = ["me gusta that song"] * 16
        >>> before = perplexity(model, tokenizer, texts)
        >>> args = TrainingArguments(num_train_epochs=2, learning_rate=0.01, per_device_train_batch_size=8)
        >>> result = adapt_masked_lm(model, tokenizer, texts, args)
        >>> result.steps, result.tokens, perplexity(model, tokenizer, texts) < before
        (4, 128, True)
    """
    import_optional("accelerate", pip='"polyembed[train]"', feature="adapt_masked_lm")
    from transformers import TrainingArguments

    check_positive(max_length=max_length, shuffle_buffer=shuffle_buffer)
    check_masking(mlm_probability)
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    require(alone, "adapt_masked_lm", "run in one process", "a launcher's several")
    check_masked_lm(model)
    require(
        not (whole_word_mask and mask_switches),
        "whole_word_mask",
        "be False with mask_switches",
        True,
    )
    encoder = (SwitchEncoder if mask_switches else ExampleEncoder)(
        model, tokenizer, max_length=max_length, truncation=truncation
    )
    home = next(model.parameters()).device
    corpus = TextCorpus(texts)
    with ExitStack() as stack:
        stack.enter_context(untouched(model))
        args = TrainingArguments(seed=0, logging_steps=50) if args is None else copy.copy(args)
        _check_arguments(args, corpus, saves=folder is not None)
        masking = {
            "mlm_probability": mlm_probability,
            "whole_word_mask": whole_word_mask,
            "mask_switches": mask_switches,
            "max_length": max_length,
            "truncation": truncation,
            "shuffle_buffer": None if corpus.sequence is not None else shuffle_buffer,
        }
        numbers = {name: getattr(args, name) for name in NUMBERS}
        fingerprint = (
            {} if folder is None else {**masking, **numbers, **_describe(model, tokenizer, corpus)}
        )
        run = stack.enter_context(Run(folder, fingerprint))
        state = run.load() or {}
        if run.finished:
            model.load_state_dict(state["weights"], strict=False)
            return AdaptationResult(tuple(state["losses"]), state["steps"], state["tokens"])
        size = args.per_device_train_batch_size
        batches = MaskedBatches(
            corpus, encoder, batch_size=size, shuffle_buffer=shuffle_buffer, seed=args.seed
        )
        if args.max_steps <= 0:
            batches.size = tuple(state["size"]) if state else batches.measure()
            require(batches.size[0] > 0, "texts", "hold at least one text with a piece", "none")
            args.max_steps = math.ceil(args.num_train_epochs * batches.size[0])
        run.save({"size": batches.size})
        checkpoints = None if run.folder is None else run.folder / "checkpoints"
        checkpoint = None if checkpoints is None else last_checkpoint(checkpoints)
        kinds = {"whole_word_mask": whole_word_mask, "mask_switches": mask_switches}
        collate = make_collator(tokenizer, mlm_probability, **kinds, seed=args.seed)
        start = 0 if checkpoint is None else int(checkpoint.name.rpartition("-")[2])
        stream = MaskedStream(batches, collate, start=start, stop=args.max_steps)
        _set_arguments(
            args, checkpoints, scratch=stack.enter_context(tempfile.TemporaryDirectory())
        )
        losses = train(model, stream, args, checkpoint, progress=progress)
        model.to(home)
        result = AdaptationResult(losses, args.max_steps, stream.tokens)
        weights = {name: value.detach().cpu() for name, value in trained_state(model).items()}
        run.finish({"weights": weights, **result._asdict(), "losses": list(losses)})
        if checkpoints is not None:
            shutil.rmtree(checkpoints, ignore_errors=True)
    return result


def _check_arguments(args: "TrainingArguments", corpus: TextCorpus, *, saves: bool) -> None:
    from transformers import TrainingArguments

    if not isinstance(args, TrainingArguments):
        raise TypeError(must("args", "be TrainingArguments of transformers", type(args).__name__))
    steps = args.max_steps > 0
    check_positive(per_device_train_batch_size=args.per_device_train_batch_size)
    require(
        steps or args.num_train_epochs > 0, "num_train_epochs", "be positive", args.num_train_epochs
    )
    whole = args.logging_steps >= 1 and args.save_steps >= 1
    require(
        whole, "logging_steps and save_steps", "be 1 or more", (args.logging_steps, args.save_steps)
    )
    accumulated = args.gradient_accumulation_steps
    require(
        accumulated == 1,
        "gradient_accumulation_steps",
        "be 1 (take a larger batch size)",
        accumulated,
    )
    rule = f"be a multiple of logging_steps, {args.logging_steps}"
    require(
        not saves or args.save_steps % args.logging_steps == 0, "save_steps", rule, args.save_steps
    )
    if saves or not steps:
        rule = "be readable again and again (give a function, files or a sequence)"
        reason = "with folder" if steps else "without max_steps"
        require(corpus.repeatable, "texts", rule, f"an iterator that can be read once, {reason}")


def _set_arguments(args: "TrainingArguments", checkpoints: Path | None, *, scratch: str) -> None:
    """Set what resuming and the stream of batches need."""
    from transformers.trainer_utils import SaveStrategy

    args.output_dir = str(scratch if checkpoints is None else checkpoints)
    args.save_strategy = SaveStrategy.NO if checkpoints is None else SaveStrategy.STEPS
    args.save_total_limit = 2  # the one before is whole when the last one is cut short
    args.report_to = []
    args.disable_tqdm = True
    args.logging_nan_inf_filter = False
    args.ignore_data_skip = True  # the stream starts at the right step
    args.remove_unused_columns = False
    args.dataloader_pin_memory = False
    args._n_gpu = min(args.n_gpu, 1)  # several visible GPUs would otherwise share a batch


def _describe(model: nn.Module, tokenizer: Any, corpus: TextCorpus) -> dict[str, Any]:
    core = json.loads(tokenizer.backend_tokenizer.to_str())
    for name in ("truncation", "padding"):  # of its last call
        core.pop(name, None)
    return {
        "kind": "adaptation",
        "texts": corpus.content(),
        "tokenizer": core,
        **describe_model(model),
    }
