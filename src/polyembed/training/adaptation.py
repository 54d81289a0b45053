"""Masked language modelling: adapting an encoder to text."""

import json
import math
import os
import random
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from polyembed._checks import (
    check_choice,
    check_device,
    check_file,
    check_positive,
    class_name,
    import_optional,
    must,
    require,
)
from polyembed._pretrained import usual_mode
from polyembed.training._masked_text import (
    POOL,
    Example,
    ExampleEncoder,
    TextCorpus,
    Texts,
    check_masked_lm,
    check_masking,
    chunked,
)

RECORD_NAME = "adaptation.json"
WEIGHTS_NAME = "weights.safetensors"
COMPLETE_NAME = "complete"


class AdaptationResult(NamedTuple):
    """What an adaptation came to; the model holds the last step's weights.

    Attributes:
        losses: The mean masked-LM loss, in nats, of each `logging_steps` steps; the last one of those left over.
        steps: Steps of the optimiser, over all calls that went on from one another.
        tokens: Pieces seen, special ones and padding left out; a piece counts again in each epoch.
    """

    losses: tuple[float, ...]
    steps: int
    tokens: int


def adapt_masked_lm(
    model: nn.Module,
    tokenizer: Any,
    texts: Texts,
    *,
    num_train_epochs: int = 3,
    max_steps: int | None = None,
    mlm_probability: float = 0.15,
    whole_word_mask: bool = False,
    max_length: int = 128,
    truncation: bool = False,
    batch_size: int = 8,
    learning_rate: float = 5e-5,
    lr_scheduler_type: Literal["linear", "cosine", "constant", "constant_with_warmup"] = "linear",
    warmup_steps: int = 0,
    weight_decay: float = 0.0,
    max_grad_norm: float = 1.0,
    bf16: bool = False,
    device: str | torch.device | None = None,
    seed: int = 0,
    shuffle_buffer: int = 10_000,
    logging_steps: int = 50,
    folder: str | os.PathLike[str] | None = None,
    save_steps: int = 500,
    progress: bool | None = None,
) -> AdaptationResult:
    r"""Go on training a masked language model on `texts`, by transformers' own `Trainer` and data collator.

    .. math:: L = -\frac{1}{|M|} \sum_{i \in M} \log p(x_i \mid \tilde{x})

    over a batch, where each piece is in M with probability `mlm_probability` and x~ has, in the places of M,
    80 % mask pieces, 10 % random pieces and 10 % the pieces themselves (2503.07990, section "Method").

    **Masks** are dynamic: drawn anew for each batch of each epoch. A batch in which chance chose no piece gets one.
    With `whole_word_mask` words are drawn, as the tokenizer's pre-tokenizer splits them, and all their pieces replaced
    by mask pieces (the collator has no 80/10/10 there).

    **Examples**: one a text, never two texts in one. A text longer than `max_length` becomes several examples, so that
    nothing is lost; with `truncation` its tail is. Texts without a piece are left out, as are lone surrogates.

    **Order**: a sequence is shuffled as a whole each epoch. A stream, that is any other source, goes through a buffer
    of `shuffle_buffer` texts: each text that comes out is drawn from those in the buffer, so a file that is sorted by
    language stays roughly sorted unless the buffer is as large as its parts. Then `32 * batch_size` examples at a time
    are sorted by length, cut into batches, and the batches shuffled: little padding.

    **Memory**: texts are tokenised as they are needed and forgotten. Of a stream at most `shuffle_buffer` texts and
    the pieces of 32 batches are held. Without `max_steps` the texts are tokenised once beforehand, to count the steps.

    **Resuming**: with `folder`, every `save_steps` steps the Trainer's state goes to a checkpoint. After a kill the
    same call goes on from the last one to the very weights and losses that it would have reached: each step draws its
    masks and dropout from `seed` and its own number. A stream is read again up to that point. When finished, the
    folder holds the last weights and the result, and the same call returns at once.

    The caller's random state, the model's device and its modes are as before afterwards. Nothing is reported anywhere
    and nothing is written outside `folder`.

    Deviations: the paper truncates texts at 128 pieces; here the rest becomes further examples. It does not name the
    learning rate, the schedule, the order of texts, nor the shares of mask, random and kept pieces (the collator's
    defaults).

    Args:
        model: A transformers model for masked language modelling.
        tokenizer: Its tokenizer, a fast one, with a mask piece.
        texts: A sequence of strings; one path or a sequence of `Path`, of files with one text a line (``.xz``,
            ``.gz`` and ``.bz2`` are opened as such); a function that gives a new iterator at each call; or any
            iterable, one that can only be read once with `max_steps` and without `folder`. A bare string is a path.
        num_train_epochs: Passes over the texts.
        max_steps: So many steps instead, over as many epochs as that takes.
        mlm_probability: The probability with which a piece, or a word, is masked.
        whole_word_mask: Whether all pieces of a word are masked together.
        max_length: The most pieces of an example, special ones included.
        truncation: Whether the rest of a longer text is dropped.
        batch_size: Examples a step.
        learning_rate: The highest learning rate, of AdamW.
        lr_scheduler_type: The learning rate after the warm-up, down to 0 at the last step or constant.
        warmup_steps: Steps in which the learning rate grows from 0.
        weight_decay: AdamW's, on weights that are neither biases nor of layer norms.
        max_grad_norm: Clip the gradient's norm to this; 0 = never.
        bf16: Autocast to bfloat16; the weights stay as they are.
        device: Where to train: ``"cpu"``, or ``"cuda"`` for the first visible GPU; where the model is if None.
        seed: Of the order, the masks and dropout.
        shuffle_buffer: Texts of a stream held for shuffling.
        logging_steps: Steps that each loss is the mean of.
        folder: Where to keep checkpoints and the result; None: nowhere.
        save_steps: Steps from one checkpoint to the next, a multiple of `logging_steps`.
        progress: Whether to show a progress bar (on stderr); if None, only on a terminal.

    Returns:
        The losses, steps and tokens.

    Raises:
        ImportError: accelerate, which the Trainer needs, is missing.
        ValueError: Nothing to train on, options out of range, a loss that is not finite, a folder of another run, or
            several processes.
        TypeError: A model without a masked-LM head, a slow tokenizer, or texts that are not strings.
        FileNotFoundError: A file that is not there.

    Example:
        >>> from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast
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
        >>> result = adapt_masked_lm(model, tokenizer, texts, num_train_epochs=2, learning_rate=0.01)
        >>> result.steps, result.tokens, perplexity(model, tokenizer, texts) < before
        (4, 128, True)
    """
    import_optional("accelerate", pip='"polyembed[train]"', feature="adapt_masked_lm")
    check_positive(
        num_train_epochs=num_train_epochs,
        max_steps=1 if max_steps is None else max_steps,
        max_length=max_length,
        batch_size=batch_size,
        shuffle_buffer=shuffle_buffer,
        logging_steps=logging_steps,
        save_steps=save_steps,
    )
    check_masking(mlm_probability)
    rule = "be a multiple of logging_steps"
    require(folder is None or save_steps % logging_steps == 0, "save_steps", f"{rule}, {logging_steps}", save_steps)
    check_choice("lr_scheduler_type", lr_scheduler_type, ("linear", "cosine", "constant", "constant_with_warmup"))
    rates = {"learning_rate": learning_rate, "weight_decay": weight_decay, "max_grad_norm": max_grad_norm}
    for name, value in {**rates, "warmup_steps": warmup_steps}.items():
        require(value >= 0, name, "not be negative", value)
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    require(alone, "adapt_masked_lm", "run in one process", "a launcher's several")
    check_masked_lm(model)
    encoder = ExampleEncoder(model, tokenizer, max_length=max_length, truncation=truncation)
    home = next(model.parameters()).device
    where = _check_device(device, home)
    corpus = TextCorpus(texts)
    rule = "be readable again and again (give a function, files or a sequence)"
    if max_steps is None or folder is not None:
        reason = "without max_steps" if max_steps is None else "with folder"
        require(corpus.repeatable, "texts", rule, f"an iterator that can be read once, {reason}")
    options = {
        "num_train_epochs": num_train_epochs if max_steps is None else None,
        "max_steps": max_steps,
        "mlm_probability": mlm_probability,
        "whole_word_mask": whole_word_mask,
        "max_length": max_length,
        "truncation": truncation,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "lr_scheduler_type": lr_scheduler_type,
        "warmup_steps": warmup_steps,
        "weight_decay": weight_decay,
        "max_grad_norm": max_grad_norm,
        "bf16": bf16,
        "seed": seed,
        "shuffle_buffer": None if corpus.sequence is not None else shuffle_buffer,
        "logging_steps": logging_steps,
        "save_steps": save_steps,
    }
    batches = _Batches(corpus, encoder, batch_size=batch_size, shuffle_buffer=shuffle_buffer, seed=seed)
    record = None if folder is None else _Record(Path(folder), _fingerprint(model, tokenizer, corpus, options))
    if record is not None and record.result is not None:
        record.load_weights(model)
        return record.result
    if max_steps is None:
        size = (record and record.size) or batches.measure()
        require(size[0] > 0, "texts", "hold at least one text with a piece", "none")
        max_steps = num_train_epochs * size[0]
        batches.size = size
    if record is not None:
        record.size = batches.size
        record.save()

    collate = _collator(tokenizer, mlm_probability, whole_word_mask=whole_word_mask, seed=seed)
    checkpoint = None if record is None else record.last_checkpoint()
    start = 0 if checkpoint is None else int(checkpoint.name.rpartition("-")[2])
    stream = _Stream(batches, collate, start=start, stop=max_steps)
    with tempfile.TemporaryDirectory() as scratch, _untouched(model):
        losses = _train(
            model,
            stream,
            checkpoint,
            seed=seed,
            progress=progress,
            output_dir=str(scratch if record is None else record.checkpoints),
            use_cpu=where.type == "cpu",
            per_device_train_batch_size=batch_size,
            max_steps=max_steps,
            learning_rate=learning_rate,
            lr_scheduler_type=lr_scheduler_type,
            warmup_steps=warmup_steps,
            weight_decay=weight_decay,
            max_grad_norm=max_grad_norm,
            bf16=bf16,
            logging_steps=logging_steps,
            save_strategy="no" if record is None else "steps",
            save_steps=save_steps,
        )
    model.to(home)
    result = AdaptationResult(losses, max_steps, stream.tokens)
    if record is not None:
        record.finish(model, result)
    return result


# Examples -> batches


class _Batches:
    """Gives the batches of an epoch, the same for the same seed and epoch."""

    def __init__(
        self, corpus: TextCorpus, encoder: ExampleEncoder, *, batch_size: int, shuffle_buffer: int, seed: int
    ) -> None:
        self.corpus = corpus
        self.encoder = encoder
        self.batch_size = batch_size
        self.shuffle_buffer = shuffle_buffer
        self.seed = seed
        self.size: tuple[int, int] | None = None  # batches and pieces of an epoch, where they were counted

    def measure(self) -> tuple[int, int]:
        examples, pieces = 0, 0
        for example in self.encoder(self.corpus.open()):
            examples, pieces = examples + 1, pieces + example.size
        return -(-examples // self.batch_size), pieces

    def __call__(self, epoch: int) -> Iterator[list[Example]]:
        rng = random.Random(f"texts {self.seed} {epoch}")
        examples = self.encoder(self.corpus.shuffled(rng, self.shuffle_buffer))
        order = random.Random(f"batches {self.seed} {epoch}")  # of its own: `rng` is drawn from lazily
        for pool in chunked(examples, POOL * self.batch_size):
            pool.sort(key=lambda example: len(example.ids))
            batches = list(chunked(pool, self.batch_size))
            order.shuffle(batches)
            yield from batches


class _Stream(IterableDataset[dict[str, Tensor]]):
    """The batches of steps `start` to `stop`, over as many epochs as that takes."""

    def __init__(
        self,
        batches: _Batches,
        collate: Callable[[list[Example], int], dict[str, Tensor]],
        *,
        start: int,
        stop: int,
    ) -> None:
        self.batches = batches
        self.collate = collate
        self.start = start
        self.stop = stop
        self.tokens = 0

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        step, epoch, self.tokens = 0, 0, 0
        if self.batches.size is not None:  # whole epochs need not be read again
            count, pieces = self.batches.size
            epoch = self.start // count
            step, self.tokens = epoch * count, epoch * pieces
        while step < self.stop:
            begun = step
            for batch in self.batches(epoch):
                if step == self.stop:
                    return
                self.tokens += sum(example.size for example in batch)
                if step >= self.start:
                    yield self.collate(batch, step)
                step += 1
            rule = f"hold text for {self.stop} steps"
            require(step > begun, "texts", rule, f"an end after {step}")
            epoch += 1


def _collator(
    tokenizer: Any, mlm_probability: float, *, whole_word_mask: bool, seed: int
) -> Callable[[list[Example], int], dict[str, Tensor]]:
    from transformers import DataCollatorForLanguageModeling

    # whole words are always replaced by mask pieces; saying so keeps the collator from warning of it
    shares: dict[str, Any] = {"mask_replace_prob": 1.0, "random_replace_prob": 0.0} if whole_word_mask else {}
    collator = DataCollatorForLanguageModeling(
        tokenizer, mlm_probability=mlm_probability, whole_word_mask=whole_word_mask, seed=seed, **shares
    )

    def collate(batch: list[Example], step: int) -> dict[str, Tensor]:
        collator.generator = torch.Generator().manual_seed(_step_seed("mask", seed, step))
        longest = max(len(example.ids) for example in batch)
        features = []
        for ids, special, word_ids in batch:
            feature: dict[str, Any] = {"input_ids": ids, "special_tokens_mask": special}
            if whole_word_mask:
                offsets = _word_offsets(word_ids)
                feature["offset_mapping"] = offsets + [(0, 0)] * (longest - len(ids))
            features.append(feature)
        real = torch.tensor([[not s for s in special] + [False] * (longest - len(ids)) for ids, special, _ in batch])
        found = dict(collator(features))
        if not (found["labels"] != -100).any():  # the mean over no piece would be NaN
            candidates = real.nonzero()
            row, column = candidates[
                torch.randint(len(candidates), (), generator=collator.generator)
            ].tolist()  # fmt: skip
            found["labels"][row, column] = found["input_ids"][row, column]
            found["input_ids"][row, column] = tokenizer.mask_token_id
        return found

    return collate


def _word_offsets(word_ids: list[int | None]) -> list[tuple[int, int]]:
    """Restate words as the collator tells them: pieces that touch are one word's.

    Real offsets join words in scripts without spaces, and wherever the space belongs to a piece.
    """
    offsets, last, place = [], None, 0
    for word in word_ids:
        place += word is None or word != last
        offsets.append((place, place + 1))
        place, last = place + 1, word
    return offsets


def _step_seed(purpose: str, seed: int, step: int) -> int:
    """Hash: generators that are seeded with small neighbouring numbers begin alike."""
    return random.Random(f"{purpose} {seed} {step}").getrandbits(63)


# Training


def _train(
    model: nn.Module, stream: _Stream, checkpoint: Path | None, *, seed: int, progress: bool | None, **options: Any
) -> tuple[float, ...]:
    from tqdm import tqdm
    from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    class Follow(TrainerCallback):
        """Seeds each step, logs the last one, marks whole checkpoints, stops at a loss that is not finite."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            disable = None if progress is None else not progress  # tqdm's None: off where there is no terminal
            done, total = state.global_step, state.max_steps
            self.bar = tqdm(total=total, initial=done, desc="steps", leave=False, disable=disable)

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            torch.manual_seed(_step_seed("dropout", seed, state.global_step))

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.bar.update()
            control.should_log = control.should_log or state.global_step == state.max_steps
            if state.global_step == state.max_steps:
                control.should_save = False  # the last weights are saved with the result

        def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            loss = kwargs["logs"].get("loss", 0.0)
            if not math.isfinite(loss):
                raise ValueError(must("loss", "stay finite", f"{loss} up to step {state.global_step}"))

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            Path(args.output_dir, f"checkpoint-{state.global_step}", COMPLETE_NAME).touch()

    class Streaming(Trainer):
        """Takes batches as they come."""

        def get_train_dataloader(self) -> Any:
            return DataLoader(stream, batch_size=None)

    arguments = TrainingArguments(
        **options,
        seed=seed % 2**32,
        report_to="none",
        disable_tqdm=True,
        logging_nan_inf_filter=False,
        save_total_limit=2,  # the one before is whole when the last one is cut short
        ignore_data_skip=True,  # the stream starts where it must
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # several visible GPUs would otherwise share a batch
    follow = Follow()
    trainer = Streaming(model=model, args=arguments, train_dataset=stream, callbacks=[follow])
    trainer.remove_callback(PrinterCallback)  # it writes to stdout
    try:
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    finally:
        if hasattr(follow, "bar"):
            follow.bar.close()
    return tuple(entry["loss"] for entry in trainer.state.log_history if "loss" in entry)


@contextmanager
def _untouched(model: nn.Module) -> Iterator[None]:
    """Put back what a Trainer sets and forgets: modes, random states, verbosity, accelerate's state."""
    import numpy as np
    from transformers.utils import logging as verbosity

    modes = [(module, module.training) for module in model.modules()]
    wrapping = ("forward", "_original_forward", "_is_accelerate_prepared")  # accelerate's, for autocast
    own = {name: value for name, value in vars(model).items() if name in wrapping}
    missing = object()
    use_cache = getattr(model.config, "use_cache", missing)
    level, bars = verbosity.get_verbosity(), verbosity.is_progress_bar_enabled()
    singletons = import_optional("accelerate.state")
    kinds = (singletons.PartialState, singletons.AcceleratorState, singletons.GradientState)
    states = [(kind._shared_state, dict(kind._shared_state)) for kind in kinds]
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            verbosity.set_verbosity_error()  # type: ignore[no-untyped-call]
            verbosity.disable_progress_bar()  # type: ignore[no-untyped-call]  # each checkpoint would show one
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        for live, saved in states:
            live.clear()
            live.update(saved)
        verbosity.set_verbosity(level)
        if bars:
            verbosity.enable_progress_bar()  # type: ignore[no-untyped-call]
        if use_cache is not missing:
            model.config.use_cache = use_cache  # type: ignore[union-attr]
        for name in wrapping:
            vars(model).pop(name, None)
        vars(model).update(own)
        for module, training in modes:
            module.training = training
        model.zero_grad(set_to_none=True)


class _Record:
    """A folder with the checkpoints of an adaptation or its result, and what run they are of."""

    def __init__(self, folder: Path, fingerprint: dict[str, Any]) -> None:
        self.folder = folder
        self.checkpoints = folder / "checkpoints"
        self.fingerprint = fingerprint
        self.size: tuple[int, int] | None = None
        self.result: AdaptationResult | None = None
        path = folder / RECORD_NAME
        if not path.exists():
            return
        try:
            data = json.loads(path.read_text("utf-8"))
            theirs, size, result = dict(data["fingerprint"]), data["size"], data["result"]
            self.size = None if size is None else (size[0], size[1])
            if result is not None:
                self.result = AdaptationResult(tuple(result["losses"]), result["steps"], result["tokens"])
        except (ValueError, TypeError, KeyError, IndexError) as error:
            rule = "be a record of an adaptation"
            raise ValueError(must(str(path), rule, f"{class_name(error)}: {error}")) from error
        differs = [key for key, value in fingerprint.items() if theirs.get(key) != value]
        rule = "be of this run (choose another folder or remove it)"
        require(not differs, str(path), rule, f"other {differs}")

    def save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        result = None if self.result is None else self.result._asdict()
        text = json.dumps({"fingerprint": self.fingerprint, "size": self.size, "result": result})
        draft = self.folder / f"{RECORD_NAME}.draft"
        draft.write_text(text, "utf-8")
        draft.replace(self.folder / RECORD_NAME)

    def last_checkpoint(self) -> Path | None:
        """Give the last checkpoint that is whole; those that a kill cut short go."""
        whole: list[tuple[int, Path]] = []
        for path in self.checkpoints.glob("checkpoint-*"):
            if (path / COMPLETE_NAME).exists():
                whole.append((int(path.name.rpartition("-")[2]), path))
            else:
                shutil.rmtree(path)
        return max(whole)[1] if whole else None

    def finish(self, model: nn.Module, result: AdaptationResult) -> None:
        from safetensors.torch import save_model

        with usual_mode(self.folder / f"{WEIGHTS_NAME}.draft") as draft:
            save_model(model, str(draft))
        draft.replace(self.folder / WEIGHTS_NAME)
        self.result = result
        self.save()
        shutil.rmtree(self.checkpoints, ignore_errors=True)

    def load_weights(self, model: nn.Module) -> None:
        from safetensors.torch import load_model

        path = check_file(self.folder / WEIGHTS_NAME, name="folder", where="Remove the folder to start anew.")
        load_model(model, str(path), device=str(next(model.parameters()).device))


def _check_device(device: str | torch.device | None, home: torch.device) -> torch.device:
    where = home if device is None else check_device("device", device)
    first = where.type == "cpu" or (where.type == "cuda" and where.index in (None, 0))
    rule = "be the CPU or the first visible GPU (choose by CUDA_VISIBLE_DEVICES)"
    require(first, "device", rule, where)
    return where


def _fingerprint(model: nn.Module, tokenizer: Any, corpus: TextCorpus, options: dict[str, Any]) -> dict[str, Any]:
    shapes = sorted((name, list(value.shape)) for name, value in model.named_parameters())
    core = json.loads(tokenizer.backend_tokenizer.to_str())
    for name in ("truncation", "padding"):  # of its last call
        core.pop(name, None)
    return {
        **options,
        "texts": corpus.mark,
        "tokenizer": zlib.crc32(json.dumps(core, sort_keys=True).encode()),
        "parameters": zlib.crc32(json.dumps(shapes).encode()),
    }
