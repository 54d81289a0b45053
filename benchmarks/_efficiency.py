"""The efficiency study of Winata 2021, section 4.2: sizes, speeds and activation memory."""

import gc
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from polyembed._checks import check_choice, check_positive, class_name, must, require
from polyembed.embeddings.embedder import WordEmbedder, require_lexicon
from polyembed.embeddings.meta import CombinedEmbedder
from polyembed.evaluation.plots import _finish, _new_axes
from polyembed.saving import PretrainedModule
from polyembed.tables import Table
from polyembed.tagging.tagger import SequenceTagger
from polyembed.tagging.text_model import to_device
from polyembed.text.lexicon import NUM_SPECIAL
from polyembed.text.pieces import Pieces

MB = 2**20
ENDED = object()
"""The result of a call that did not fit in memory."""
OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "_ALLOC_FAILED")
"""Parts of the messages of CPU allocators (Linux, Windows) and of GPU drivers and libraries."""


def attempt(call: Callable[[], Any], device: torch.device) -> Any:
    """Return the result of a call, or `ENDED` if it did not fit in memory."""
    try:
        return call()
    except (MemoryError, RuntimeError) as error:
        known = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not known and not any(words in str(error) for words in OUT_OF_MEMORY):
            raise
        error.__traceback__ = None  # the traceback keeps all tensors of the call
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return ENDED


def seconds(
    module: nn.Module, call: Callable[[Any], object], batch: Any, device: torch.device
) -> float:
    """Return the seconds that a call takes in evaluation mode, without gradients."""
    with in_mode(module, training=False), torch.no_grad():
        _synchronize(device)
        start = time.perf_counter()
        call(batch)
        _synchronize(device)
        return time.perf_counter() - start


def activation_mb(
    module: nn.Module,
    call: Callable[[Any], Tensor],
    batch: Any,
    device: torch.device,
    *,
    training: bool,
) -> float:
    """Return the activation memory of a forward pass or of a training step in MB."""
    with in_mode(module, training=training):
        if device.type != "cuda":
            return _saved_mb(call, [*module.parameters(), *module.buffers()], batch)
        before = torch.cuda.memory_allocated(device)
        output = call(batch)  # noqa: F841 - keeps the tensors of its backward pass
        return (torch.cuda.memory_allocated(device) - before) / MB


def _saved_mb(call: Callable[[Any], object], own: Sequence[Tensor], batch: object) -> float:
    """Return the size in MB of the tensors that autograd saves in a call.

    The parameters and buffers in `own` and the tensors of the batch do not count.
    """
    known = {storage(value) for value in (*own, *_tensors(batch))}
    saved: dict[int, int] = {}
    alive: list[Tensor] = []  # keeps the storages, so that no address is reused

    def pack(value: Tensor) -> None:  # returns None: a saved output would keep itself alive
        if (place := storage(value)) not in known:
            saved[place] = value.untyped_storage().nbytes()
            alive.append(value.detach())

    with (
        torch.random.fork_rng(devices=[]),
        torch.enable_grad(),
        saved_tensors_hooks(pack, lambda value: value),
    ):
        call(batch)
    return sum(saved.values()) / MB


def storage(value: Tensor) -> int:
    """Return the address of a tensor's storage."""
    return value.untyped_storage().data_ptr()


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def in_mode(module: nn.Module, *, training: bool) -> Iterator[None]:
    """Set the mode of a module, and restore the mode of each of its parts afterwards."""
    modes = {part: part.training for part in module.modules()}
    module.train(training)
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


def random_inputs(
    embedder: WordEmbedder,
    rows: int,
    length: int,
    pieces_per_word: float,
    generator: torch.Generator,
) -> Any:
    """Return random ids, random `Pieces`, or a tuple of them for a mixed embedder.

    The result is None if the embedder cannot read `length`.
    """
    if embedder.lexicon is not None:
        count = embedder.num_embeddings
        return torch.randint(
            min(NUM_SPECIAL, count - 1), count, (rows, length), generator=generator
        )
    if isinstance(embedder, CombinedEmbedder):
        members = [
            random_inputs(member, rows, length, pieces_per_word, generator)
            for member in embedder.members
        ]
        return None if any(member is None for member in members) else tuple(members)
    count = round(length * pieces_per_word)
    limit = getattr(embedder, "max_length", None)
    windows = (
        getattr(embedder, "overflow", None) == "window"
        and getattr(embedder, "tokenizer", None) is not None
    )
    if limit is not None and count > limit and not windows:
        return None
    vocabulary = _vocabulary_size(embedder)
    ids = torch.randint(min(5, vocabulary - 1), vocabulary, (rows, count), generator=generator)
    owners = (torch.arange(count) * length // count).repeat(rows, 1)
    return Pieces(ids, torch.ones_like(ids, dtype=torch.bool), owners, length)


def random_words(embedder: WordEmbedder, rows: int, length: int, *, seed: int) -> list[list[str]]:
    """Return sentences of random words from the lexicon."""
    known = require_lexicon(embedder).words() or ["unknown"]
    places = torch.randint(
        len(known), (rows, length), generator=torch.Generator().manual_seed(seed)
    )
    return [[known[i] for i in row] for row in places.tolist()]


def _vocabulary_size(encoder: Any) -> int:
    """Return the number of pieces that an encoder has vectors for.

    It is the size of a transformers model's input table, else of the encoder's largest table.
    """
    model: Any = getattr(encoder, "model", None)
    table = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
    tables = [table] if isinstance(table, nn.Embedding) else encoder.modules()
    return max(part.num_embeddings for part in tables if isinstance(part, nn.Embedding))


WARM_UP = 3


class MeasuredModel(NamedTuple):
    """A model other than a `SequenceTagger`, and how to call it.

    Attributes:
        module: The module whose parameters are counted and saved, on the device to measure on.
        inputs: Returns the inputs for a number of rows and a length, or None if the model cannot
            read that length.
        predict: The timed call, in evaluation mode without gradients.
        forward: The call whose activation memory is measured, in evaluation mode with gradients.
        loss: Computes a training loss; None skips the training step.
        preprocess: The preprocessing for a number of rows and a length, which is timed separately;
            None skips it.
    """

    module: nn.Module
    inputs: Callable[[int, int], Any]
    predict: Callable[[Any], object]
    forward: Callable[[Any], Tensor]
    loss: Callable[[Any], Tensor] | None = None
    preprocess: Callable[[int, int], object] | None = None


class ModelSize(NamedTuple):
    """The size of a model.

    Attributes:
        trainable: The number of parameters that require a gradient; a shared parameter counts once.
        frozen: The number of other parameters.
        memory_mb: The size of the parameters and buffers in memory, in MB of 2**20 bytes.
        disk_mb: The size in MB of the folder that `save_pretrained` writes without source vectors;
            None if the model was not saved.
    """

    trainable: int
    frozen: int
    memory_mb: float
    disk_mb: float | None

    @property
    def parameters(self) -> int:
        """The number of all parameters."""
        return self.trainable + self.frozen


class PredictionSpeed(NamedTuple):
    """The speed of a model at one length.

    Attributes:
        sentences: The sentences per second of the median run.
        low: The sentences per second of the slower quartile.
        high: The sentences per second of the faster quartile.
        tokens: The tokens per second of the median run.
        runs: The number of runs.
        preprocessing_ms: The median preprocessing time of one batch; None if it was not measured.
    """

    sentences: float
    low: float
    high: float
    tokens: float
    runs: int
    preprocessing_ms: float | None


class ActivationMemory(NamedTuple):
    """The activation memory of one batch at one length, in MB of 2**20 bytes.

    Attributes:
        forward: The memory after a forward pass in evaluation mode with gradients; None if it was
            not measured.
        training: The memory after the forward pass of a training step; None if it was not measured.
    """

    forward: float | None
    training: float | None


class EfficiencyReport(NamedTuple):
    """The costs of several models.

    Attributes:
        sizes: The `ModelSize` of each model.
        speeds: The `PredictionSpeed` of each model at each length; lengths that the model cannot
            read are missing.
        memories: The `ActivationMemory` of each model at each length.
        out_of_memory: The pairs of a length and a step that did not fit in memory, for each model.
            A step is ``"predict"``, ``"forward"`` or ``"training"``.
        lengths: The requested lengths.
        batch_size: The number of sentences in a batch.
        device: The device of the measurement.
        threads: The number of CPU threads.
    """

    sizes: dict[str, ModelSize]
    speeds: dict[str, dict[int, PredictionSpeed]]
    memories: dict[str, dict[int, ActivationMemory]]
    out_of_memory: dict[str, set[tuple[int, str]]]
    lengths: tuple[int, ...]
    batch_size: int
    device: str
    threads: int

    def size_table(self) -> Table:
        """Return parameters and sizes, one row per model (Winata 2021, table 4 and section 4.2)."""
        columns = ("model", "parameters", "trainable", "frozen", "memory MB", "disk MB")
        return Table(
            columns, [(name, size.parameters, *size) for name, size in self.sizes.items()], 1
        )

    def speed_table(self, unit: Literal["sentences", "tokens"] = "sentences") -> Table:
        """Return the median `unit` per second by model and length (Winata 2021, figure 3)."""
        check_choice("unit", unit, ("sentences", "tokens"))
        return self._table(self.speeds, unit, "predict")

    def preprocessing_table(self) -> Table:
        """Return the median preprocessing time of a batch in ms, one row per model."""
        return self._table(self.speeds, "preprocessing_ms", None)

    def memory_table(self, step: Literal["forward", "training"] = "forward") -> Table:
        """Return the activation memory in MB by model and length (Winata 2021, tables 6 and 7)."""
        check_choice("step", step, ("forward", "training"))
        return self._table(self.memories, step, step)

    def _table(
        self, values: Mapping[str, Mapping[int, Any]], field: str, step: str | None
    ) -> Table:
        def cell(name: str, length: int) -> float | str | None:
            ended = (length, step) in self.out_of_memory[name]
            return "out of memory" if ended else getattr(values[name].get(length), field, None)

        rows = [(name, *(cell(name, length) for length in self.lengths)) for name in self.sizes]
        return Table(("model", *map(str, self.lengths)), rows, 1)


def efficiency_report(
    models: Mapping[str, SequenceTagger | MeasuredModel],
    *,
    lengths: Sequence[int] = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096),
    batch_size: int = 1,
    runs: int = 100,
    max_seconds: float | None = 60.0,
    pieces_per_word: float = 1.0,
    disk: bool = True,
    seed: int = 0,
    device: str | torch.device | None = None,
) -> EfficiencyReport:
    """Measure parameters, size, speed and activation memory of models (Winata 2021, section 4.2).

    *Length* counts words for a type embedder and pieces for a contextual one, as in the paper. With
    `pieces_per_word` a contextual embedder reads that many times more pieces, which compares the
    models on the same words. Inputs are random ids, without the special ids at the start of a
    vocabulary.

    *Speed* is the speed of `decode` in evaluation mode without gradients, after three warm-up runs.
    The models take turns, so that other load on the machine affects them all. The conversion of
    known words to ids is timed separately. Tokenizers are not timed.

    *Activation memory* is the memory that a forward pass keeps for its backward pass. On a GPU it
    is the growth of the allocated memory. On a CPU it is the size of the tensors that autograd
    saves, without parameters and inputs; each storage counts once. If a model runs out of memory,
    the tables show this, and the measurement continues with other lengths and models.

    Args:
        models: The models by name.
        lengths: The lengths of the sentences.
        batch_size: The number of sentences in a batch, 1 in the paper.
        runs: The number of runs of each model at each length.
        max_seconds: The time after which a model's warm-up or its runs at one length stop; None
            means no limit.
        pieces_per_word: The number of pieces per word, for taggers over a contextual embedder.
        disk: Whether to save each model to a temporary folder and measure the folder's size.
        seed: The seed of the inputs.
        device: The device to move the models to. If None, they stay on their device, which must be
            the same for all.

    Returns:
        The report with all figures and their tables.

    Raises:
        ValueError: If `models` or `lengths` is empty, if the models are on several devices, or if a
            size is out of range.
        TypeError: If a model is neither a `SequenceTagger` nor a `MeasuredModel`.

    Example:
        >>> from polyembed import Lexicon, SourceEmbedding
        >>> lexicon = Lexicon(["me", "gusta", "that", "song"])
        >>> words = SourceEmbedding.from_embedding(nn.Embedding(len(lexicon), 8), lexicon)
        >>> report = efficiency_report({"table": SequenceTagger(words, ["X", "VERB"])}, lengths=[4, 8], runs=3)
        >>> report.sizes["table"].trainable, report.speed_table().columns
        (74, ('model', '4', '8'))

    Deviations: the paper measures on a GTX 1080 Ti. It does not say which of the 100 runs it
    reports, or whether tagging includes the CRF's decoding. Here tagging includes it.
    """
    lengths = tuple(lengths)
    check_positive(
        batch_size=batch_size, runs=runs, **{f"lengths[{i}]": n for i, n in enumerate(lengths)}
    )
    require(len(lengths) > 0, "lengths", "hold at least one length", "none")
    require(len(models) > 0, "models", "hold at least one model", "none")
    require(
        1.0 <= pieces_per_word < math.inf,
        "pieces_per_word",
        "be at least 1, and finite",
        pieces_per_word,
    )
    require(max_seconds is None or max_seconds > 0, "max_seconds", "be positive", max_seconds)
    measured = {
        name: _measured(name, model, pieces_per_word, seed) for name, model in models.items()
    }
    where = _place(measured, device)
    speeds: dict[str, dict[int, PredictionSpeed]] = {name: {} for name in measured}
    memories: dict[str, dict[int, ActivationMemory]] = {name: {} for name in measured}
    ends: dict[str, set[tuple[int, str]]] = {name: set() for name in measured}
    for length in lengths:
        batches: dict[str, Any] = {}
        for name, model in measured.items():
            steps = {
                step: call
                for step, call in (("forward", model.forward), ("training", model.loss))
                if call
            }
            batch = attempt(partial(model.inputs, batch_size, length), where)
            if batch is ENDED:
                ends[name].update((length, step) for step in ("predict", *steps))
            elif batch is not None:
                batches[name], found = batch, {}
                for step, call in steps.items():
                    measure = partial(
                        activation_mb, model.module, call, batch, where, training=step == "training"
                    )
                    found[step] = attempt(measure, where)
                    if found[step] is ENDED:
                        ends[name].add((length, step))
                        found[step] = None
                memories[name][length] = ActivationMemory(found["forward"], found.get("training"))
        times = _times(measured, batches, where, runs, max_seconds)
        for name in batches:
            if name in times:
                speeds[name][length] = _speed(times[name], measured[name], batch_size, length)
            else:
                ends[name].add((length, "predict"))
    machine = torch.cuda.get_device_name(where) if where.type == "cuda" else str(where)
    sizes = {name: _size(model.module, disk=disk) for name, model in measured.items()}
    return EfficiencyReport(
        sizes, speeds, memories, ends, lengths, batch_size, machine, torch.get_num_threads()
    )


def _measured(
    name: str, model: SequenceTagger | MeasuredModel, pieces_per_word: float, seed: int
) -> MeasuredModel:
    if isinstance(model, MeasuredModel):
        return model
    if not isinstance(model, SequenceTagger):
        raise TypeError(
            must(f"models[{name!r}]", "be a SequenceTagger or a MeasuredModel", class_name(model))
        )
    tagger, embedder = model, model.embedder

    def inputs(rows: int, length: int) -> tuple[Any, Tensor, Tensor] | None:
        generator = torch.Generator().manual_seed(seed)
        read = random_inputs(embedder, rows, length, pieces_per_word, generator)
        tags = torch.randint(len(tagger.tags), (rows, length), generator=generator)
        batch = (read, tags, torch.ones(rows, length, dtype=torch.bool))
        return None if read is None else to_device(batch, tagger.device)

    words = cache(partial(random_words, embedder, seed=seed))  # so that drawing is not timed
    return MeasuredModel(
        tagger,
        inputs,
        predict=lambda batch: tagger.decode(batch[0], batch[2]),
        forward=lambda batch: tagger.emissions(batch[0], batch[2]),
        loss=lambda batch: tagger(batch[0], tags=batch[1], mask=batch[2]),
        preprocess=None
        if embedder.lexicon is None
        else lambda rows, length: tagger.encode(words(rows, length)),
    )


def _place(models: Mapping[str, MeasuredModel], device: str | torch.device | None) -> torch.device:
    """Move the models to `device`, if there is one, and return the device of all models."""
    if device is not None:
        device = torch.device(device)
        for model in models.values():
            model.module.to(device)
    tensors = (
        next(chain(model.module.parameters(), model.module.buffers()), None)
        for model in models.values()
    )
    devices = {tensor.device for tensor in tensors if tensor is not None} or {
        device or torch.device("cpu")
    }
    require(len(devices) == 1, "models", "be on one device", sorted(map(str, devices)))
    return devices.pop()


def _times(
    models: Mapping[str, MeasuredModel],
    batches: Mapping[str, Any],
    device: torch.device,
    runs: int,
    max_seconds: float | None,
) -> dict[str, list[float]]:
    """Return the seconds of each model's predictions, timed in turns.

    A model that runs out of memory is left out.
    """
    times: dict[str, list[float]] = {}
    ready = list(batches)
    for count in (WARM_UP, runs):
        times = {name: [] for name in ready}
        for _ in range(count):
            for name in tuple(ready):
                if max_seconds is None or sum(times[name]) <= max_seconds:
                    taken = attempt(
                        partial(
                            seconds,
                            models[name].module,
                            models[name].predict,
                            batches[name],
                            device,
                        ),
                        device,
                    )
                    if taken is ENDED:
                        ready.remove(name)
                    else:
                        times[name].append(taken)
    return {name: times[name] for name in ready}


def _speed(
    times: Sequence[float], model: MeasuredModel, batch_size: int, length: int
) -> PredictionSpeed:
    low, median, high = statistics.quantiles(
        times if len(times) > 1 else [*times, *times], n=4, method="inclusive"
    )
    before = []
    for _ in range(0 if model.preprocess is None else 5):
        start = time.perf_counter()
        model.preprocess(batch_size, length)  # type: ignore[misc]
        before.append(1e3 * (time.perf_counter() - start))
    sentences = batch_size / median
    milliseconds = statistics.median(before) if before else None
    return PredictionSpeed(
        sentences, batch_size / high, batch_size / low, sentences * length, len(times), milliseconds
    )


def _size(module: nn.Module, *, disk: bool) -> ModelSize:
    parameters = list(module.parameters())
    storages = {
        storage(value): value.untyped_storage().nbytes()
        for value in (*parameters, *module.buffers())
    }
    trainable = sum(value.numel() for value in parameters if value.requires_grad)
    written = None
    if disk and isinstance(module, PretrainedModule):
        with tempfile.TemporaryDirectory() as parent:
            module.save_pretrained(Path(parent) / "model", copy_vectors=False)
            written = (
                sum(path.stat().st_size for path in Path(parent).rglob("*") if path.is_file()) / MB
            )
    frozen = sum(value.numel() for value in parameters) - trainable
    return ModelSize(trainable, frozen, sum(storages.values()) / MB, written)


def plot_efficiency(
    report: EfficiencyReport, picture: Literal["speed", "memory"] = "speed", *, ax: Any = None
) -> Any:
    """Draw speed (Winata 2021, figure 3) or activation memory (table 7) against length.

    Args:
        report: The result of `efficiency_report`.
        picture: ``"speed"`` or ``"memory"``.
        ax: The matplotlib axes to draw on; new axes if None.

    Returns:
        The axes.

    Raises:
        ValueError: If `picture` is neither ``"speed"`` nor ``"memory"``.
        ImportError: If matplotlib is not installed.
    """
    check_choice("picture", picture, ("speed", "memory"))
    ax = ax or _new_axes("plot_efficiency")[0]
    handles, positive = {}, False
    for number, name in enumerate(report.sizes):
        if picture == "speed":
            found = {length: speed.sentences for length, speed in report.speeds[name].items()}
        else:
            forward = {length: memory.forward for length, memory in report.memories[name].items()}
            found = {length: value for length, value in forward.items() if value is not None}
        # ten colours, then the same colours with another marker and line style
        look = {
            "marker": "osD^v"[number // 10 % 5],
            "linestyle": ("-", "--", ":", "-.")[number // 10 % 4],
        }
        (handles[name],) = ax.plot(list(found), list(found.values()), label=name, **look)
        positive = positive or any(value > 0 for value in found.values())
    if positive:  # a logarithmic axis needs a positive number
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
    ax.set_xticks(report.lengths, list(map(str, report.lengths)))
    ylabel = "sentences a second" if picture == "speed" else "activation memory, MB"
    return _finish(ax, handles, xlabel="length", ylabel=ylabel)
