"""The loop of MetaXL, and of the baselines it is compared with (Xia 2021)."""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import default_collate

from polyembed._checks import check_choice, check_positive, class_name, is_count, must, require
from polyembed._progress import progress_bar
from polyembed.tagging.text_model import to_device
from polyembed.training.checkpoints import load_checkpoint, save_checkpoint
from polyembed.training.state import Epoch, FitResult, TrainingState, sizes_of
from polyembed.transfer.joint import joint_step
from polyembed.transfer.metaxl import METHODS, metaxl_step
from polyembed.transfer.rtn import listed
from polyembed.transfer.steps import check_modules, check_options, layers_of, model_loss, trained

SOURCE = "source"
CHECKPOINT_NAME = "checkpoint.pt"
Schedule: TypeAlias = Callable[[Optimizer, int], LRScheduler]
OBJECTIVES = ("metaxl", "joint", "joint_rtn", "target_only")


@dataclass(frozen=True, kw_only=True)
class MetaXLOptions:
    """How `MetaXLTrainer` trains.

    Attributes:
        objective: ``"metaxl"``, ``"joint"``, ``"joint_rtn"`` or ``"target_only"``; see
            `MetaXLTrainer`.
        method: How meta-gradients are computed; see `polyembed.metaxl_gradients`.
        target_weight: The weight of the target's loss in joint training, and of the target's own
            loss in the inner loss of ``"metaxl"``; the authors' code has 1. With ``"metaxl"`` each
            target batch is then split in two: every second row is for the inner loss, the others
            for the outer loss. With 0 the whole batch is for the outer loss, and the model learns
            from source batches alone, which is algorithm 1 as printed.
        weight: The share of the transform; see `polyembed.transformed_output`.
        num_train_epochs: How many epochs.
        backoff_epochs: How many epochs of joint training follow.
        batch_size: Rows of each batch, in each process; an even number where target batches are
            split.
        target_batch_size: Rows of a target batch; `batch_size` if None. The model of ``"metaxl"``
            learns from half of them in a step, so joint training with half as many is its control.
        source_temperature: If None, each step reads a batch of every source language. Else it reads
            one, of a language drawn in proportion to its number of rows to the power ``1 / T``.
        gradient_accumulation_steps: Batches of each data set in a step.
        max_grad_norm: The norm to which the model's gradient is clipped; None = never.
        meta_max_grad_norm: The same for the gradient of the network that transforms.
        amp_dtype: The dtype in which losses are computed, ``torch.bfloat16``.
        seed: The seed of order and dropout.

    Raises:
        ValueError: If an option is out of range.
    """

    objective: str = "metaxl"
    method: str = "forward_over_reverse"
    target_weight: float = 1.0
    weight: float | Sequence[float] | None = None
    num_train_epochs: int = 20
    backoff_epochs: int = 0
    batch_size: int = 16
    target_batch_size: int | None = None
    source_temperature: float | None = None
    gradient_accumulation_steps: int = 1
    max_grad_norm: float | None = 1.0
    meta_max_grad_norm: float | None = None
    amp_dtype: torch.dtype | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("objective", self.objective, OBJECTIVES)
        check_choice("method", self.method, METHODS)
        for name in ("num_train_epochs", "batch_size", "gradient_accumulation_steps"):
            check_positive(**{name: getattr(self, name)})
        whole = is_count(self.backoff_epochs) and self.backoff_epochs >= 0
        require(whole, "backoff_epochs", "be an integer, 0 or more", self.backoff_epochs)
        names = ("target_weight", "max_grad_norm", "meta_max_grad_norm", "amp_dtype")
        check_options(**{name: getattr(self, name) for name in names})
        name = "batch_size" if self.target_batch_size is None else "target_batch_size"
        check_positive(**{name: getattr(self, name)})
        rows, splits = getattr(self, name), self.splits_target
        rule = f"be even, because a target_weight of {self.target_weight} splits target batches"
        require(rows % 2 == 0 or not splits, name, rule, rows)
        heat = self.source_temperature
        require(heat is None or heat > 0, "source_temperature", "be positive, or None", heat)

    @property
    def splits_target(self) -> bool:
        """Return whether each target batch is split between the inner and the outer loss."""
        return self.objective == "metaxl" and self.target_weight > 0


class MetaXLTrainerStep(NamedTuple):
    """The figures of one step; None where its objective has no such figure.

    Attributes:
        number: Counted from 1, over all epochs.
        epoch: Counted from 1.
        loss: The loss that the model descends, before the step; of ``"metaxl"`` the inner loss.
        norm: The norm of its gradient, before clipping.
        target_loss: The target loss after the look-ahead.
        meta_norm: The norm of the gradient of the network that transforms, before clipping.
        cosine: Between the inner loss's gradient and the target's.
    """

    number: int
    epoch: int
    loss: float
    norm: float
    target_loss: float | None = None
    meta_norm: float | None = None
    cosine: float | None = None


Batches: TypeAlias = list[tuple[str | None, list[Any]]]


class Rows(Protocol):
    """A data set: a list, a map-style torch dataset, a `datasets.Dataset`."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class Stream:
    """Reads rows in passes, each in a new random order, in batches that are all full.

    A batch that a pass does not fill continues with the next pass. Several processes share each
    joined batch: the first process takes its first rows.

    Args:
        rows: The data set.
        batch_size: The number of rows of a batch, in one process.
        seed: The seed of the orders.
        rank: The number of this process.
        size: The number of processes.
    """

    def __init__(self, rows: Rows, *, batch_size: int, seed: int, rank: int, size: int) -> None:
        self.rows = rows
        self.batch_size = batch_size
        self.seed = seed
        self.rank, self.size = rank, size
        self.drawn = -1
        self.order: list[int] = []

    def batch(self, number: int) -> list[Any]:
        """Read this process's share of a batch, counted from 0 over all passes."""
        start = (number * self.size + self.rank) * self.batch_size
        return [self._row(place) for place in range(start, start + self.batch_size)]

    def _row(self, place: int) -> Any:
        number, offset = divmod(place, len(self.rows))
        if number != self.drawn:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
            self.drawn, self.order = (
                number,
                torch.randperm(len(self.rows), generator=generator).tolist(),
            )
        return self.rows[self.order[offset]]


class Plan:
    """The batches of one objective, of each data set by language; the target's language is None.

    Args:
        objective: The objective of the trainer.
        epochs: The number of epochs.
        corpora: The data sets by language, the target last.
        options: The sizes of batches, how many are accumulated, and the seed.
        rank: The number of this process.
        size: The number of processes.
    """

    def __init__(
        self,
        objective: str,
        epochs: int,
        corpora: Mapping[str | None, Rows],
        options: MetaXLOptions,
        *,
        rank: int,
        size: int,
    ) -> None:
        self.objective, self.epochs = objective, epochs
        self.accumulated = options.gradient_accumulation_steps
        alone = objective == "target_only"
        read: Mapping[str | None, Rows] = {None: corpora[None]} if alone else corpora
        target_size = options.target_batch_size or options.batch_size
        self.streams = {
            language: Stream(
                part,
                batch_size=target_size if language is None else options.batch_size,
                seed=options.seed * 1_009 + number,
                rank=rank,
                size=size,
            )
            for number, (language, part) in enumerate(read.items())
        }
        counts = {x: len(part) / self.streams[x].batch_size for x, part in read.items()}
        longest = max(counts.values())
        self.shares: Tensor | None = None
        named = [language for language in read if language is not None]
        if options.source_temperature is not None and named:
            sizes = torch.tensor([len(read[x]) for x in named], dtype=torch.float64)
            self.shares = (sizes.log() / options.source_temperature).softmax(0)
            longest = max(counts[None], sum(counts[x] for x in named))
        self.seed = options.seed
        self.steps = math.ceil(longest / (size * self.accumulated))

    def read(self, step: int) -> Batches:
        """Read a step's batches, each with its language."""
        found: Batches = []
        for number in range(step * self.accumulated, (step + 1) * self.accumulated):
            languages = list(self.streams)
            if self.shares is not None:  # the same language in each process
                generator = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
                drawn = int(torch.multinomial(self.shares, 1, generator=generator))
                languages = [languages[drawn], None]
            found += [(language, self.streams[language].batch(number)) for language in languages]
        return sorted(found, key=lambda pair: pair[0] is None)


def moved(value: Any, device: torch.device) -> Any:
    """Move the tensors of a batch, which may be a mapping."""
    if isinstance(value, Mapping) and not hasattr(value, "to"):
        return {name: moved(part, device) for name, part in value.items()}
    return value.to(device) if hasattr(value, "to") else to_device(value, device)


def check_rows(name: str, rows: Any) -> None:
    """Require a data set that can be read at any index."""
    if not hasattr(rows, "__getitem__") or isinstance(rows, str | Mapping):
        rule = "be rows, with a length and an index (no loader, no iterator)"
        raise TypeError(must(name, rule, class_name(rows)))
    require(len(rows) > 0, name, "hold at least one row", "none")


class MetaXLTrainer:
    """Train a model for a target language with the help of source languages (Xia 2021).

    One option makes a baseline, over the same batches and as many steps. `objective`:

    - ``"metaxl"``: `metaxl_step` on a batch of each source language and one of the target. Every
      second row of the target batch is in the inner loss, the others are in the outer loss (with a
      `target_weight` of 0, all are).
    - ``"joint"``: `joint_step`, a step along the gradient of ``L_s + L_t``, the mean source loss
      and the target loss.
    - ``"joint_rtn"``: the same, with source batches transformed; the network learns by the same
      loss (section 4.4).
    - ``"target_only"``: the target's data alone.

    An epoch is one pass over the largest data set (the source, as a rule); the others are read
    repeatedly. With ``"target_only"`` it is one pass over the target. Evaluation and prediction do
    not use the network that transforms.

    *Back-off* (section 4.6): with `backoff_epochs`, the best epoch's model is then trained jointly,
    without the network, for so many epochs more; these take part in the choice of the best.

    *Order.* Every batch is full: one that a pass does not fill continues with the next pass. (Only
    such a target batch can have a row in both its halves.) Orders and dropout follow from `seed`
    and the number of the pass or epoch alone, inside a fork of torch's random state. A run that was
    killed resumes after its last finished epoch, with the same numbers. Random numbers of other
    generators in `collate` and `loss` are not restored.

    *Processes.* Where ``torch.distributed`` runs, each process takes `batch_size` rows of each
    joined batch, and gradients are averaged: the numbers are equal to one process with larger
    batches, dropout aside. All processes start from the first one's parameters and use its score;
    the first one writes the checkpoint, in a folder that all can read.

    Args:
        model: What to train, on the device that it is on. Not wrapped, not compiled.
        rtn: The network that transforms, one for all languages, or an ``nn.ModuleDict`` with one
            for each; for several layers a list with one for each layer. None for the objectives
            without.
        layer: The layer whose output is transformed: a number as `hidden_states` counts (see
            `encoder_layer`), a module, or several.
        options: Numbers and choices; the defaults of `MetaXLOptions` if None.
        optimizer: The optimiser of the model; Adam with a learning rate of 3e-5 if None.
        meta_optimizer: The optimiser of `rtn`; the same if None.
        scheduler: From an optimiser and the number of steps to a scheduler that is stepped after
            each step: one function for both optimisers, or a pair of functions (None = no
            schedule).
        loss: From the model and a batch to the mean loss; by default ``model(**batch)``, or its
            ``loss``.

    Raises:
        ValueError: If the model is compiled, a layer cannot be found, or there is no parameter to
            train.
        TypeError: If the model is wrapped, or the objective needs a network and has none.

    Example:
        >>> from polyembed import RepresentationTransformationNetwork
        >>> model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
        >>> def loss(model, batch):
        ...     return nn.functional.cross_entropy(model(batch["x"]), batch["label"])
        >>> trainer = MetaXLTrainer(
        ...     model, RepresentationTransformationNetwork(7, bottleneck=3), layer=model[1],
        ...     options=MetaXLOptions(num_train_epochs=2, batch_size=4), loss=loss,
        ... )
        >>> source = [{"x": torch.randn(5), "label": i % 3} for i in range(12)]
        >>> result = trainer.train(source, source[:3], evaluate=lambda model: 0.5)
        >>> len(result.history)
        2

    Deviations: the paper does not say how an epoch is counted (its code: by the source), names no
    optimiser but gradient descent, and neither schedule nor clipping. Of its code's steps, MetaXL's
    alone clips; here all objectives do. Its joint training is on the concatenation of source and
    target (section 2.1); its code, and this, take a batch of each in a step. (For the
    concatenation, give it as the target of ``"target_only"``.) The paper has one source language at
    a time; its code merges and shuffles several, here each step has a batch of each. The authors'
    code has the first half of a target batch in the inner loss; here it is every second row, so
    that accumulated batches and several processes split as one large batch does. See
    `metaxl_gradients` for more.
    """

    def __init__(
        self,
        model: nn.Module,
        rtn: nn.Module | Sequence[nn.Module] | None,
        layer: int | nn.Module | Sequence[int | nn.Module] = 12,
        *,
        options: MetaXLOptions | None = None,
        optimizer: Optimizer | None = None,
        meta_optimizer: Optimizer | None = None,
        scheduler: Schedule | tuple[Schedule | None, Schedule | None] | None = None,
        loss: Callable[[nn.Module, Any], Tensor] = model_loss,
    ) -> None:
        self.options = MetaXLOptions() if options is None else options
        transforms = self.options.objective in ("metaxl", "joint_rtn")
        if transforms and rtn is None:
            rule = f"be a module, or several, for objective {self.options.objective!r}"
            raise TypeError(must("rtn", rule, None))
        self.model, self.rtn = model, rtn if transforms else None
        networks = listed(rtn) if transforms else []
        check_modules(model, networks)
        self.layers = layers_of(model, layer) if transforms else []
        self.parts = nn.ModuleDict({"model": model, "rtn": nn.ModuleList(networks)})
        theta = trained("model", model, None, "optimizer", besides=self.parts["rtn"])
        self.optimizer = Adam(theta.values(), lr=3e-5) if optimizer is None else optimizer
        trained("model", model, self.optimizer, "optimizer", besides=self.parts["rtn"])
        self.meta_optimizer = None
        if transforms:
            phi = trained("rtn", self.parts["rtn"], None, "meta_optimizer")
            self.meta_optimizer = (
                Adam(phi.values(), lr=3e-5) if meta_optimizer is None else meta_optimizer
            )
            trained("rtn", self.parts["rtn"], self.meta_optimizer, "meta_optimizer")
        self.schedules = scheduler if isinstance(scheduler, tuple) else (scheduler, scheduler)
        self.loss = loss

    def train(
        self,
        source: Rows | Mapping[str, Rows] | None,
        target: Rows,
        *,
        evaluate: Callable[[nn.Module], float] | None = None,
        collate: Callable[[list[Any]], Any] = default_collate,
        on_step: Callable[[MetaXLTrainerStep], object] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: bool | None = None,
    ) -> FitResult:
        """Train, evaluate after each epoch, and keep the best epoch's weights in model and `rtn`.

        Args:
            source: The source language's rows, or language -> rows. ``"target_only"`` needs none.
            target: The target language's rows.
            evaluate: The model's score on the development set, higher is better; the model is in
                eval mode, without gradients. If None, the last epoch is the best, and scores are
                NaN.
            collate: From a list of rows to a batch; by default torch's. Its tensors are moved to
                the model's device.
            on_step: Called after each step, in every process.
            checkpoint: A folder for the state after each epoch; if it holds one, training resumes
                from there.
            progress: Whether to show a progress bar; if None, only on a terminal.

        Returns:
            The best epoch and the history; an epoch's loss is the mean of its steps'.

        Raises:
            TypeError: If data are not rows.
            ValueError: If there are no rows, a language has no network, a loss is not finite (the
                message has the step's number; the weights are unchanged), or the checkpoint is of
                another run.
        """
        corpora = self._corpora(source, target)
        options = self.options

        def make(rows: list[Any]) -> Any:
            return moved(collate(rows), self._device)

        devices = [self._device] if self._device.type == "cuda" else []
        rank, size = _rank_and_size()
        with torch.random.fork_rng(devices):
            if size > 1:
                for tensor in self.parts.state_dict().values():
                    torch.distributed.broadcast(tensor.detach(), 0)
            phases = [
                (options.objective, options.num_train_epochs),
                ("joint", options.backoff_epochs),
            ]
            plans = [
                Plan(kind, epochs, corpora, options, rank=rank, size=size)
                for kind, epochs in phases
                if epochs
            ]
            optimizers = [one for one in (self.optimizer, self.meta_optimizer) if one is not None]
            steps = sum(plan.steps * plan.epochs for plan in plans)
            pairs = zip(optimizers, self.schedules, strict=False)
            schedulers = [make(optimizer, steps) for optimizer, make in pairs if make is not None]
            state = TrainingState(self.parts, optimizers, schedulers)
            path = None if checkpoint is None else Path(checkpoint, CHECKPOINT_NAME)
            about = self._about(corpora, size)
            if path is not None and (saved := load_checkpoint(path, **about)) is not None:
                state.load_state_dict(saved)
            if size > 1:
                torch.distributed.barrier()  # all have read before one writes
            epoch = step = 0
            for plan in plans:
                for turn in range(plan.epochs):
                    epoch, step = epoch + 1, step + plan.steps
                    if epoch <= len(state.history):
                        continue
                    if turn == 0 and state.history:
                        state.restore_best()  # the back-off starts from the best epoch
                    start = time.perf_counter()
                    torch.manual_seed((options.seed * 1_000_003 + epoch) * size + rank)
                    self.parts.train()
                    total = 0.0
                    shown = progress if rank == 0 else False
                    for i in progress_bar(range(plan.steps), progress=shown, desc=f"epoch {epoch}"):
                        read = plan.read(turn * plan.steps + i)
                        found = self._step(
                            plan.objective, read, make, step - plan.steps + i + 1, epoch
                        )
                        for scheduler in schedulers:
                            scheduler.step()
                        total += found.loss
                        if on_step is not None:
                            on_step(found)
                    score = self._score(evaluate, epoch)
                    state.add(Epoch(epoch, total / plan.steps, score, time.perf_counter() - start))
                    if path is not None and rank == 0:
                        save_checkpoint(path, state.state_dict(), **about)
            state.restore_best()
        return state.result

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _corpora(
        self, source: Rows | Mapping[str, Rows] | None, target: Rows
    ) -> dict[str | None, Rows]:
        """Check the data and return them by language, the target last and by None."""
        needed = self.options.objective != "target_only" or self.options.backoff_epochs > 0
        named: dict[str, Rows] = {}
        if source is not None and needed:
            named = dict(source) if isinstance(source, Mapping) else {SOURCE: source}
        require(bool(named) or not needed, "source", "hold data of at least one language", "none")
        for language, rows in named.items():
            check_rows(f"source[{language!r}]" if isinstance(source, Mapping) else SOURCE, rows)
        check_rows("target", target)
        for network in listed(self.rtn):
            if isinstance(network, nn.ModuleDict):
                unknown = ", ".join(map(repr, named.keys() - network.keys())) or None
                rule = f"be a mapping whose languages are among {', '.join(map(repr, network))}"
                found = unknown if isinstance(source, Mapping) else class_name(source)
                require(unknown is None, SOURCE, rule, found)
        return dict([*named.items(), (None, target)])

    def _step(
        self, objective: str, read: Batches, make: Callable[[Any], Any], number: int, epoch: int
    ) -> MetaXLTrainerStep:
        """Do step `number` of the run, on batches that `make` makes of the rows read."""
        options = self.options
        names = ("weight", "max_grad_norm", "meta_max_grad_norm", "amp_dtype")
        shared: dict[str, Any] = {name: getattr(options, name) for name in names}
        shared |= {
            "optimizer": self.optimizer,
            "meta_optimizer": self.meta_optimizer,
            "loss": self.loss,
        }
        shared["languages"] = [name for name, _ in read if name is not None]
        source = [make(rows) for name, rows in read if name is not None]
        target = [rows for name, rows in read if name is None]
        splits = objective == "metaxl" and options.splits_target
        inner = [make(rows[::2]) for rows in target] if splits else None
        target = [make(rows[1::2] if splits else rows) for rows in target]
        try:
            if objective == "metaxl":
                rest: dict[str, Any] = {
                    "target_weight": options.target_weight,
                    "method": options.method,
                }
                rest["target_support"] = inner
                found = metaxl_step(
                    self.model, listed(self.rtn), self.layers, source, target, **rest, **shared
                )
                losses = (
                    found.source_loss,
                    found.source_norm,
                    found.target_loss,
                    found.meta_norm,
                    found.cosine,
                )
                return MetaXLTrainerStep(number, epoch, *losses)
            rtn = self.rtn if objective == "joint_rtn" else None
            if options.objective != "metaxl":  # whose back-off weighs both alike
                shared["target_weight"] = options.target_weight
            step = joint_step(self.model, rtn, self.layers, source, target, **shared)
        except ValueError as error:
            raise ValueError(f"{error} (step {number})") from error
        return MetaXLTrainerStep(number, epoch, step.loss, step.norm, meta_norm=step.meta_norm)

    def _score(self, evaluate: Callable[[nn.Module], float] | None, epoch: int) -> float:
        """Evaluate in every process; the first one's score counts."""
        if evaluate is None:
            return math.nan
        self.parts.eval()
        with torch.no_grad():
            scores = [float(evaluate(self.model))]
            if _rank_and_size()[1] > 1:
                torch.distributed.broadcast_object_list(scores, 0)
        score = scores[0]
        require(
            math.isfinite(score), "evaluate", "give a finite score", f"{score} in epoch {epoch}"
        )
        return score

    def _about(self, corpora: Mapping[str | None, Rows], size: int) -> dict[str, Any]:
        """Return what a resumed training must have in common with this one, as plain values."""
        places = {id(module): name for name, module in self.model.named_modules()}
        options = asdict(self.options)
        options["batch_size"] *= size * options.pop("gradient_accumulation_steps")
        options["amp_dtype"] = str(options["amp_dtype"])
        if self.schedules == (None, None) and not self.options.backoff_epochs:
            del options["num_train_epochs"]
        return {
            **options,
            "model and rtn": ", ".join(map(sizes_of, self.parts.children())),
            "layers": [places.get(id(layer), class_name(layer)) for layer in self.layers],
            "rows": {str(name): len(rows) for name, rows in corpora.items()},
            "optimizers": [repr(part) for part in (self.optimizer, self.meta_optimizer)],
        }


def _rank_and_size() -> tuple[int, int]:
    """Return the number of this process, and how many there are."""
    dist = torch.distributed
    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    return dist.get_rank(), dist.get_world_size()
