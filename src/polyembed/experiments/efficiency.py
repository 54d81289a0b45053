"""What a model costs: parameters, size, speed and activation memory, for several models side by side."""

import gc
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from polyembed._checks import check_choice, check_device, check_positive, class_name, must, require
from polyembed._pretrained import PretrainedModule
from polyembed.tables import Table
from polyembed.tagging.tagger import SequenceTagger
from polyembed.text.lexicon import NUM_SPECIAL
from polyembed.text.pieces import Pieces

MB = 2**20
OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "_ALLOC_FAILED")
"""What the CPU's allocators on Linux and Windows say, and drivers and libraries of GPUs."""


class Subject(NamedTuple):
    """A model to measure, where it is no `SequenceTagger`.

    Attributes:
        module: Counted and saved; on the device that it is measured on.
        inputs: From the number of rows and their length to what the next three take; None where the model cannot read
            so much.
        predict: What is timed, without gradients, in evaluation mode.
        forward: What activation memory is measured on, with gradients, in evaluation mode.
        loss: One training loss; None leaves training out.
        preprocess: From rows and length to nothing: the work before `inputs`, timed apart; None leaves it out.
    """

    module: nn.Module
    inputs: Callable[[int, int], Any]
    predict: Callable[[Any], object]
    forward: Callable[[Any], Tensor]
    loss: Callable[[Any], Tensor] | None = None
    preprocess: Callable[[int, int], object] | None = None


class Size(NamedTuple):
    """How large a model is.

    Attributes:
        trainable: Parameters that require a gradient; those that stand in several places count once.
        frozen: The others.
        memory_mb: Parameters and buffers in memory, MB of 2**20 bytes.
        disk_mb: What `save_pretrained` writes, vectors that were read from files left out; None if it was not saved.
    """

    trainable: int
    frozen: int
    memory_mb: float
    disk_mb: float | None


class Speed(NamedTuple):
    """How fast a model predicts at one length.

    Attributes:
        sentences: Sentences a second: of the median run.
        low: Of the slower quartile.
        high: Of the faster quartile.
        tokens: Tokens a second, of the median run.
        runs: How many runs.
        preprocessing_ms: Median time before the model, for one batch; None if it was not measured.
    """

    sentences: float
    low: float
    high: float
    tokens: float
    runs: int
    preprocessing_ms: float | None


class Memory(NamedTuple):
    """Activation memory of one batch at one length, in MB of 2**20 bytes.

    Attributes:
        forward: After a forward pass in evaluation mode, gradients on; None if it did not fit in memory.
        training: At the peak of a training step's forward and backward pass (GPU), or kept for the backward pass
            (CPU); None if there is no loss, or if it did not fit in memory.
    """

    forward: float | None
    training: float | None


class EfficiencyReport(NamedTuple):
    """The costs of several models.

    Attributes:
        sizes: Model -> its size.
        speeds: Model -> length -> its speed; lengths that it cannot read are missing.
        memories: Model -> length -> its activation memory.
        out_of_memory: Model -> lengths and steps (``"predict"``, ``"forward"``, ``"training"``) that memory ended at.
        lengths: Those asked for.
        batch_size: Sentences a batch.
        device: Where it was measured.
        threads: Of the CPU.
    """

    sizes: dict[str, Size]
    speeds: dict[str, dict[int, Speed]]
    memories: dict[str, dict[int, Memory]]
    out_of_memory: dict[str, set[tuple[int, str]]]
    lengths: tuple[int, ...]
    batch_size: int
    device: str
    threads: int

    def size_table(self) -> Table:
        """Give parameters and sizes, a row a model (Winata 2021, table 6)."""
        columns = ("model", "parameters", "trainable", "frozen", "memory MB", "disk MB")
        rows = [
            (name, size.trainable + size.frozen, size.trainable, size.frozen, size.memory_mb, size.disk_mb)
            for name, size in self.sizes.items()
        ]
        return Table(columns, rows, 1)

    def speed_table(self, unit: Literal["sentences", "tokens"] = "sentences") -> Table:
        """Give the median throughput a second, a row a model and a column a length (figure 3)."""
        check_choice("unit", unit, ("sentences", "tokens"))
        return self._table(self.speeds, unit, "predict")

    def preprocessing_table(self) -> Table:
        """Give the median time before the model, in ms a batch."""
        return self._table(self.speeds, "preprocessing_ms", None)

    def memory_table(self, step: Literal["forward", "training"] = "forward") -> Table:
        """Give activation memory in MB, a row a model and a column a length (table 7)."""
        check_choice("step", step, ("forward", "training"))
        return self._table(self.memories, step, step)

    def _table(self, values: Mapping[str, Mapping[int, Any]], field: str, step: str | None) -> Table:
        def cell(name: str, length: int) -> float | str | None:
            if (length, step) in self.out_of_memory[name]:
                return "out of memory"
            found = values[name].get(length)
            return None if found is None else getattr(found, field)

        rows = [(name, *(cell(name, length) for length in self.lengths)) for name in self.sizes]
        return Table(("model", *map(str, self.lengths)), rows, 1)


def efficiency_report(
    models: Mapping[str, SequenceTagger | Subject],
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
    """Measure models side by side: parameters, size, speed, activation memory (Winata 2021, section 4.2).

    *Length* counts what a model reads: words for a tagger over a word embedder, pieces for one over a word encoder, as
    the paper counts; with `pieces_per_word` a word encoder reads so many times more, which compares models on the same
    words. Sentences are drawn at random from the lexicon, or from all piece ids.

    *Speed*: `decode` in evaluation mode without gradients, after three runs to warm up; models take turns, so that a
    noisy moment meets them all. What comes before the model (words to ids, in a lexicon that knows them) is timed
    apart; pieces are made by tokenizers, which this does not time.

    *Activation memory*: on a GPU what the allocator holds more after the forward pass than before, and the peak of a
    training step. On a CPU the tensors that autograd saves, each storage once, parameters and inputs left out: what
    the backward pass needs, not what passes through on the way. Where memory ends the tables say so, and the other
    lengths and models go on.

    Args:
        models: By name.
        lengths: Of the sentences.
        batch_size: Sentences a batch; 1 in the paper.
        runs: Of each model at each length.
        max_seconds: Stop a model's runs at one length after so long, and its runs to warm up; None = never.
        pieces_per_word: For taggers over a word encoder.
        disk: Whether to save each model to a temporary folder and weigh it.
        seed: Of the sentences.
        device: Where to measure: models move there, and stay; None = where they are, all on one.

    Returns:
        All figures, and their tables.

    Raises:
        ValueError: No model, no length, models on several devices, a device that is not there, or sizes out of range.
        TypeError: A model that is neither a `SequenceTagger` nor a `Subject`.

    Example:
        >>> from polyembed import Lexicon, SourceEmbedding
        >>> lexicon = Lexicon(["me", "gusta", "that", "song"])
        >>> tagger = SequenceTagger(SourceEmbedding.from_embedding(nn.Embedding(len(lexicon), 8), lexicon), ["X", "VERB"])
        >>> report = efficiency_report({"table": tagger}, lengths=[4, 8], runs=3)
        >>> report.sizes["table"].trainable, report.speed_table().columns
        (74, ('model', '4', '8'))

    Deviations: the paper measures on a GTX 1080 Ti and does not say which runs of the 100 it reports, nor whether
    tagging includes the CRF's decoding; here it does.
    """
    lengths = tuple(lengths)
    check_positive(batch_size=batch_size, runs=runs, **{f"lengths[{i}]": n for i, n in enumerate(lengths)})
    require(len(lengths) > 0, "lengths", "hold at least one length", "none")
    require(len(models) > 0, "models", "hold at least one model", "none")
    require(1.0 <= pieces_per_word < math.inf, "pieces_per_word", "be at least 1, and finite", pieces_per_word)
    require(max_seconds is None or max_seconds > 0, "max_seconds", "be positive", max_seconds)
    subjects = {name: _subject(name, model, pieces_per_word, seed) for name, model in models.items()}
    if device is not None:
        device = check_device("device", device)
        for subject in subjects.values():
            subject.module.to(device)
    devices = {value.device for subject in subjects.values() for value in _first_tensor(subject.module)}
    require(len(devices) < 2, "models", "be on one device", sorted(map(str, devices)))
    where = devices.pop() if devices else device or torch.device("cpu")
    speeds: dict[str, dict[int, Speed]] = {name: {} for name in subjects}
    memories: dict[str, dict[int, Memory]] = {name: {} for name in subjects}
    out_of_memory: dict[str, set[tuple[int, str]]] = {name: set() for name in subjects}
    for length in lengths:
        batches: dict[str, Any] = {}
        for name, subject in subjects.items():
            with _until_memory_ends(where):
                batches[name] = subject.inputs(batch_size, length)
            if name not in batches:
                steps = ("predict", "forward") if subject.loss is None else ("predict", "forward", "training")
                out_of_memory[name].update((length, step) for step in steps)
        taken = {name: subject for name, subject in subjects.items() if batches.get(name) is not None}
        for name, subject in taken.items():
            memories[name][length] = _memory(subject, batches[name], where, length, out_of_memory[name])
        times = _times(taken, batches, where, runs, max_seconds)
        for name, subject in taken.items():
            if name in times:
                speeds[name][length] = _speed(times[name], subject, batch_size, length)
            else:
                out_of_memory[name].add((length, "predict"))
    machine = torch.cuda.get_device_name(where) if where.type == "cuda" else str(where)
    sizes = {name: _size(subject.module, disk=disk) for name, subject in subjects.items()}
    threads = torch.get_num_threads()
    return EfficiencyReport(sizes, speeds, memories, out_of_memory, lengths, batch_size, machine, threads)


def _first_tensor(module: nn.Module) -> Iterator[Tensor]:
    """Give one of a module's tensors, if it has any."""
    return islice(chain(module.parameters(), module.buffers()), 1)


def _subject(name: str, model: SequenceTagger | Subject, pieces_per_word: float, seed: int) -> Subject:
    if isinstance(model, Subject):
        return model
    if not isinstance(model, SequenceTagger):
        raise TypeError(must(f"models[{name!r}]", "be a SequenceTagger or a Subject", class_name(model)))
    tagger, lexicon = model, model.lexicon
    embedder: Any = tagger.embedder

    def words(batch_size: int, length: int) -> list[list[str]]:
        generator = torch.Generator().manual_seed(seed)
        assert lexicon is not None
        known = lexicon.words()[: embedder.num_embeddings - NUM_SPECIAL] or ["unknown"]
        places = torch.randint(len(known), (batch_size, length), generator=generator)
        return [[known[i] for i in row] for row in places.tolist()]

    def inputs(batch_size: int, length: int) -> tuple[Any, Tensor, Tensor] | None:
        generator = torch.Generator().manual_seed(seed)
        device = tagger.device
        mask = torch.ones(batch_size, length, dtype=torch.bool, device=device)
        tags = torch.randint(len(tagger.tags), (batch_size, length), generator=generator).to(device)
        if lexicon is not None:
            count = min(len(lexicon), embedder.num_embeddings)  # somebody may have extended the lexicon
            ids = torch.randint(min(NUM_SPECIAL, count - 1), count, (batch_size, length), generator=generator)
            return ids.to(device), tags, mask
        pieces = _pieces(tagger.embedder, batch_size, length, pieces_per_word, generator)
        return None if pieces is None else (pieces.to(device), tags, mask)

    def forward(batch: Any) -> Tensor:
        return tagger.emissions(batch[0], batch[2])

    return Subject(
        tagger,
        inputs,
        predict=lambda batch: tagger.decode(batch[0], batch[2]),
        forward=forward,
        loss=lambda batch: tagger(batch[0], tags=batch[1], mask=batch[2]),
        preprocess=None if lexicon is None else lambda rows, length: lexicon.encode(words(rows, length)),
    )


def _pieces(encoder: Any, batch_size: int, length: int, per_word: float, generator: torch.Generator) -> Pieces | None:
    """Make sentences of random pieces, spread evenly over words; None beyond what the encoder reads."""
    count = round(length * per_word)
    limit = getattr(encoder, "max_length", None)
    windows = getattr(encoder, "overflow", None) == "window" and getattr(encoder, "tokenizer", None) is not None
    if limit is not None and count > limit and not windows:
        return None
    vocabulary = _vocabulary_size(encoder)
    ids = torch.randint(min(5, vocabulary - 1), vocabulary, (batch_size, count), generator=generator)
    owners = (torch.arange(count) * length // count).expand(batch_size, -1)
    return Pieces(ids, torch.ones_like(ids, dtype=torch.bool), owners.contiguous(), length)


def _vocabulary_size(encoder: Any) -> int:
    """Count the pieces that an encoder knows: of transformers it says so, elsewhere its largest table has them."""
    model: Any = getattr(encoder, "model", None)
    table = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
    tables = [table] if isinstance(table, nn.Embedding) else encoder.modules()
    return max(part.num_embeddings for part in tables if isinstance(part, nn.Embedding))


def _times(
    subjects: Mapping[str, Subject],
    batches: Mapping[str, Any],
    device: torch.device,
    runs: int,
    max_seconds: float | None,
) -> dict[str, list[float]]:
    """Time predictions in turns; no times of a model that memory does not suffice for."""
    times: dict[str, list[float]] = {}

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def run(name: str) -> float:
        with _mode(subjects[name].module, training=False):
            wait()
            start = time.perf_counter()
            subjects[name].predict(batches[name])
            wait()
            return time.perf_counter() - start

    with torch.no_grad():
        for name in subjects:
            with _until_memory_ends(device):
                warm: list[float] = []
                while len(warm) < 3 and (max_seconds is None or sum(warm) <= max_seconds):
                    warm.append(run(name))
                times[name] = []
        for _ in range(runs):
            for name, found in tuple(times.items()):
                if max_seconds is None or sum(found) <= max_seconds:
                    del times[name]
                    with _until_memory_ends(device):
                        found.append(run(name))
                        times[name] = found
    return times


@contextmanager
def _until_memory_ends(device: torch.device) -> Iterator[None]:
    """Leave the block where memory ends, and go on behind it."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _is_out_of_memory(error):
            raise
        error.__traceback__ = None  # it holds on to everything that the block made
    else:
        return
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _is_out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in OUT_OF_MEMORY)


def _speed(times: Sequence[float], subject: Subject, batch_size: int, length: int) -> Speed:
    median = statistics.median(times)
    low, _, high = statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else [median] * 3
    before = None
    if subject.preprocess is not None:
        found = []
        for _ in range(5):
            start = time.perf_counter()
            subject.preprocess(batch_size, length)
            found.append(1e3 * (time.perf_counter() - start))
        before = statistics.median(found)
    sentences = batch_size / median
    return Speed(sentences, batch_size / high, batch_size / low, sentences * length, len(times), before)


def _memory(
    subject: Subject, batch: Any, device: torch.device, length: int, out_of_memory: set[tuple[int, str]]
) -> Memory:
    """Measure both steps; those that memory does not suffice for are noted."""
    steps: dict[str, tuple[Callable[[Any], Tensor], bool]] = {"forward": (subject.forward, False)}
    if subject.loss is not None:
        steps["training"] = (subject.loss, True)
    found: dict[str, float | None] = {"forward": None, "training": None}
    for step, (call, training) in steps.items():
        out_of_memory.add((length, step))
        with _until_memory_ends(device), _mode(subject.module, training=training):
            if device.type == "cuda":
                found[step] = _allocated_mb(call, subject.module, batch, device, backward=training)
            else:
                found[step] = _saved_mb(call, subject.module, batch)
            out_of_memory.discard((length, step))
    return Memory(**found)


def _allocated_mb(
    call: Callable[[Any], Tensor], module: nn.Module, batch: Any, device: torch.device, *, backward: bool
) -> float:
    """Ask the allocator: what is held after a forward pass, or the peak of both passes."""
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    kept = call(batch)
    if not backward:
        return (torch.cuda.memory_allocated(device) - before) / MB
    parameters = [value for value in module.parameters() if value.requires_grad]
    torch.autograd.grad(kept, parameters, allow_unused=True)
    return (torch.cuda.max_memory_allocated(device) - before) / MB


def _saved_mb(call: Callable[[Any], object], module: nn.Module, batch: object) -> float:
    """Add up what autograd keeps of a call."""
    own = {_storage(value) for value in (*module.parameters(), *module.buffers(), *_tensors(batch))}
    saved: dict[int, int] = {}
    alive: list[Tensor] = []  # so that no address is used twice

    def pack(value: Tensor) -> None:  # nothing is kept in the graph: an output there would hold the graph that holds it
        if (place := _storage(value)) not in own:
            saved[place] = value.untyped_storage().nbytes()
            alive.append(value.detach())

    with torch.random.fork_rng(devices=[]), torch.enable_grad(), saved_tensors_hooks(pack, lambda value: value):
        call(batch)
    return sum(saved.values()) / MB


def _storage(value: Tensor) -> int:
    return value.untyped_storage().data_ptr()


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)


def _size(module: nn.Module, *, disk: bool) -> Size:
    parameters = {id(value): value for value in module.parameters()}.values()
    storages = {_storage(value): value.untyped_storage().nbytes() for value in (*parameters, *module.buffers())}
    trainable = sum(value.numel() for value in parameters if value.requires_grad)
    frozen = sum(value.numel() for value in parameters) - trainable
    written = None
    if disk and isinstance(module, PretrainedModule):
        with tempfile.TemporaryDirectory() as parent:
            folder = Path(parent) / "model"
            module.save_pretrained(folder, copy_vectors=False)
            files = (Path(root) / name for root, _, names in os.walk(folder) for name in names)
            written = sum(path.stat().st_size for path in files) / MB
    return Size(trainable, frozen, sum(storages.values()) / MB, written)


@contextmanager
def _mode(module: nn.Module, *, training: bool) -> Iterator[None]:
    """Run a module in one mode; afterwards each of its parts is in the mode that it was in."""
    modes = {part: part.training for part in module.modules()}
    module.train(training)
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode
