"""The training loop of MetaXL and of its baselines (Xia 2021)."""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import default_collate

from polyembed._batches import progress_bar
from polyembed._checks import check_choice, check_positive, class_name, require, require_type
from polyembed.tagging.text_model import to_device
from polyembed.training.state import Epoch, FitResult, TrainingState, sizes_of
from polyembed.transfer.joint import joint_step
from polyembed.transfer.metaxl import METHODS, metaxl_step
from polyembed.transfer.rtn import listed
from polyembed.transfer.steps import check_modules, check_options, layers_of, model_loss, trained

Schedule: TypeAlias = Callable[[Optimizer, int], LRScheduler]
OBJECTIVES = ("metaxl", "joint", "joint_rtn", "target_only")


@dataclass(frozen=True, kw_only=True)
class MetaXLOptions:
    """The options of `MetaXLTrainer`.

    Attributes:
        objective: ``"metaxl"``, ``"joint"``, ``"joint_rtn"`` or ``"target_only"``; see
            `MetaXLTrainer`.
        method: The way in which meta-gradients are computed; see `polyembed.metaxl_gradients`.
        target_weight: The weight of the target's loss in joint training, and of the target's own
            loss in the inner loss of ``"metaxl"``; the authors' code has 1. With ``"metaxl"`` each
            target batch is then split in two: every second row is for the inner loss, the others
            for the outer loss. With 0 the whole batch is for the outer loss, and the model learns
            from source batches alone, which is algorithm 1 as printed.
        weight: The share of the transform; see `polyembed.transformed_output`.
        num_train_epochs: The number of epochs.
        backoff_epochs: The number of epochs of joint training that follow.
        batch_size: The number of rows of each batch, in each process; an even number where target
            batches are split.
        target_batch_size: The number of rows of a target batch; `batch_size` if None. The model of
            ``"metaxl"`` learns from half of them in a step, so joint training with half as many is
            its control.
        source_temperature: If None, each step reads a batch of every source language. Else it reads
            one batch, of a language drawn in proportion to its number of rows to the power
            ``1 / T``. The rows follow the number of the step, so an epoch reads some rows twice and
            leaves others out.
        gradient_accumulation_steps: The number of batches of each data set in a step.
        max_grad_norm: The norm to which the model's gradient is clipped; None = never.
        meta_max_grad_norm: The same for the gradient of the network that transforms.
        amp_dtype: The dtype in which losses are computed, ``torch.bfloat16``; None = no autocast.
        seed: The seed of the order of rows and of dropout.

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
        positive = ("max_grad_norm", "meta_max_grad_norm", "source_temperature")
        given = {name: getattr(self, name) for name in positive}
        check_options(self.target_weight, self.amp_dtype, **given)
        name = "batch_size" if self.target_batch_size is None else "target_batch_size"
        counts = ("num_train_epochs", "batch_size", "gradient_accumulation_steps", name)
        check_positive(**{count: getattr(self, count) for count in counts})
        require(self.backoff_epochs >= 0, "backoff_epochs", "be 0 or more", self.backoff_epochs)
        rows = getattr(self, name)
        splits = self.objective == "metaxl" and self.target_weight > 0
        rule = f"be even, because a target_weight of {self.target_weight} splits target batches"
        require(rows % 2 == 0 or not splits, name, rule, rows)
        # orders multiply the seed by a billion, and torch's generators take 64 bits
        object.__setattr__(self, "seed", int(self.seed) % 2**31)


class MetaXLTrainerStep(NamedTuple):
    """The figures of one step; None where its objective has no such figure.

    Attributes:
        number: The number of the step, counted from 1 over all epochs.
        epoch: The number of the epoch, counted from 1.
        loss: The loss that the step lowers, computed before the step; with ``"metaxl"``, the inner
            loss.
        norm: The norm of that loss's gradient, before clipping.
        target_loss: The target loss after the look-ahead.
        meta_norm: The norm of the gradient of the network that transforms, before clipping.
        cosine: The cosine between the inner loss's gradient and the target's.
    """

    number: int
    epoch: int
    loss: float
    norm: float
    target_loss: float | None = None
    meta_norm: float | None = None
    cosine: float | None = None


class Rows(Protocol):
    """A data set: a list, a map-style torch dataset, a `datasets.Dataset`."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class Plan:
    """The batches of one objective.

    Every data set is read in passes, each in a new random order. A batch that a pass does not fill
    continues with the next pass. Several processes share each joined batch: the first process takes
    its first rows.

    Args:
        objective: The objective of the steps.
        corpora: The data sets by language, the target's last and under None.
        options: The sizes of batches, how many are accumulated, and the seed.
        rank: The number of this process.
        size: The number of processes.
    """

    def __init__(
        self,
        objective: str,
        corpora: Mapping[str | None, Rows],
        options: MetaXLOptions,
        rank: int,
        size: int,
    ) -> None:
        self.splits = objective == "metaxl" and options.target_weight > 0
        alone = objective == "target_only"
        self.corpora: Mapping[str | None, Rows] = {None: corpora[None]} if alone else corpora
        self.options, self.rank, self.size = options, rank, size
        self.batch_sizes = dict.fromkeys(self.corpora, options.batch_size)
        self.batch_sizes[None] = options.target_batch_size or options.batch_size
        *counts, target = (len(rows) / self.batch_sizes[x] for x, rows in self.corpora.items())
        drawn = options.source_temperature is not None
        longest = max(target, sum(counts) if drawn else max(counts, default=0))
        self.steps = math.ceil(longest / (size * options.gradient_accumulation_steps))

    def arguments(self, step: int, make: Callable[[list[Any]], Any]) -> dict[str, Any]:
        """Return the batches of a step, made of rows by `make`, as arguments of `metaxl_step`."""
        count = self.options.gradient_accumulation_steps
        numbers = range(step * count, (step + 1) * count)
        read = [(x, self._rows(x, number)) for number in numbers for x in self._languages(number)]
        targets = [rows for language, rows in read if language is None]
        found: dict[str, Any] = {
            "languages": [language for language, _ in read if language is not None],
            "source": [make(rows) for language, rows in read if language is not None],
        }
        if self.splits:
            found["target_support"] = [make(rows[::2]) for rows in targets]
        found["target"] = [make(rows[1::2] if self.splits else rows) for rows in targets]
        return found

    def _languages(self, number: int) -> list[str | None]:
        """Return the languages of a batch; with a temperature, one source and the target."""
        *sources, target = self.corpora
        heat = self.options.source_temperature
        if heat is not None and sources:
            sizes = [len(self.corpora[x]) for x in sources]
            shares = (torch.tensor(sizes, dtype=torch.float64).log() / heat).softmax(0)
            # the same language in each process
            generator = torch.Generator().manual_seed(self.options.seed * 1_000_003 + number)
            sources = [sources[int(torch.multinomial(shares, 1, generator=generator))]]
        return [*sources, target]

    def _rows(self, language: str | None, number: int) -> list[Any]:
        """Read this process's share of a batch; `number` counts from 0 over all passes."""
        rows, size = self.corpora[language], self.batch_sizes[language]
        seed = self.options.seed * 1_009 + list(self.corpora).index(language)
        start = (number * self.size + self.rank) * size
        places = (divmod(place, len(rows)) for place in range(start, start + size))
        return [rows[_order(len(rows), seed * 1_000_003 + turn)[i]] for turn, i in places]


@lru_cache(maxsize=16)
def _order(count: int, seed: int) -> list[int]:
    """Return a random order of `count` rows, which all batches of a pass read."""
    order: list[int] = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    return order


class MetaXLTrainer:
    """A trainer for a target language with the help of source languages (Xia 2021).

    The option `objective` chooses MetaXL or a baseline, over the same batches and as many steps:

    - ``"metaxl"``: `metaxl_step` on a batch of each source language and one of the target. Every
      second row of the target batch is in the inner loss, the others are in the outer loss (with a
      `target_weight` of 0, all are).
    - ``"joint"``: `joint_step`, a step along the gradient of ``L_s + L_t``, the mean source loss
      and the target loss.
    - ``"joint_rtn"``: as ``"joint"``, with source batches transformed; the network learns by the
      same loss (section 4.4).
    - ``"target_only"``: the target's data alone.

    An epoch is one pass over the largest data set (the source, as a rule); the others are read
    repeatedly. With ``"target_only"`` it is one pass over the target. Evaluation and prediction do
    not use the network that transforms.

    *Back-off* (section 4.6): with `backoff_epochs`, the best epoch's model is then trained jointly,
    without the network, for this number of epochs. The best epoch may be one of them.

    *Order.* Every batch is full: the last batch of a pass is filled from the next pass. (Only such
    a target batch can have a row in both its halves.) Orders and dropout follow from `seed` and the
    number of the pass or epoch alone, inside a fork of torch's random state. A run that was killed
    resumes after its last finished epoch, with the same numbers. Random numbers of other generators
    in `collate` and `loss` are not restored.

    *Processes.* Where ``torch.distributed`` runs, each process takes `batch_size` rows of each
    joined batch, and gradients are averaged. Apart from dropout, the numbers are the same as with
    one process and larger batches. All processes start from the parameters of the first process and
    use its score. The first process writes the checkpoint, in a folder that all can read.

    Args:
        model: The model to train, on the device that it is on. It is neither wrapped nor compiled.
        rtn: The network that transforms, one for all languages, or an ``nn.ModuleDict`` with one
            for each; for several layers a list with one for each layer. None for objectives that
            use no network.
        layer: The layer whose output is transformed: a number as `hidden_states` counts (see
            `encoder_layer`), a module, or several.
        options: The options of the training; the defaults of `MetaXLOptions` if None.
        optimizer: The optimiser of the model; Adam with a learning rate of 3e-5 if None.
        meta_optimizer: The optimiser of `rtn`; Adam with a learning rate of 3e-5 if None.
        scheduler: A function from an optimiser and the number of steps to a scheduler, which is
            stepped after each step: one function for both optimisers, or a pair of functions
            (None = no schedule).
        loss: A function from the model and a batch to the mean loss; by default
            ``model(**batch)``, or its ``loss``.

    Raises:
        ValueError: If the model is compiled; if a layer cannot be found; or if no parameter
            requires a gradient.
        TypeError: If the model is wrapped, or the objective needs a network and `rtn` is None.

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
    optimiser but gradient descent, and neither schedule nor clipping. In its code only MetaXL's
    step clips; here all objectives do. Its joint training is on the concatenation of source and
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
        self.options = options or MetaXLOptions()
        transforms = self.options.objective in ("metaxl", "joint_rtn")
        rule = f"be a module, or several, for objective {self.options.objective!r}"
        require_type(rtn is not None or not transforms, "rtn", rule, rtn)
        self.model, self.rtn = model, rtn if transforms else None
        networks = nn.ModuleList(listed(rtn) if transforms else [])
        check_modules(model, networks)
        self.layers = layers_of(model, layer) if transforms else []
        self.parts = nn.ModuleDict({"model": model, "rtn": networks})
        theta = trained("model", model, optimizer, "optimizer", besides=networks)
        self.optimizer = optimizer or Adam(theta.values(), lr=3e-5)
        self.meta_optimizer = None
        if transforms:
            phi = trained("rtn", networks, meta_optimizer, "meta_optimizer")
            self.meta_optimizer = meta_optimizer or Adam(phi.values(), lr=3e-5)
        self.schedules = scheduler if isinstance(scheduler, tuple) else (scheduler, scheduler)
        self.loss = loss
        # before a schedule changes the rates
        self._optimizers = [repr(part) for part in (self.optimizer, self.meta_optimizer)]

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
            source: The source language's rows, or a mapping from each language to its rows;
                ``"target_only"`` needs none.
            target: The target language's rows.
            evaluate: A function from the model to its score on the development set, higher is
                better; the model is in eval mode, without gradients. If None, the last epoch is the
                best, and scores are NaN.
            collate: A function from a list of rows to a batch; by default torch's. Its tensors are
                moved to the model's device.
            on_step: A function that is called after each step, in every process.
            checkpoint: A folder for the state after each epoch; if it holds one, training resumes
                from there. Only the classes of the schedules are compared.
            progress: Whether to show a progress bar; if None, only on a terminal.

        Returns:
            The best epoch and the history; an epoch's loss is the mean of its steps' losses.

        Raises:
            TypeError: If the data have no length or cannot be indexed.
            ValueError: If a data set has no rows; if a language has no network; if a loss is not
                finite (the message has the step's number, and the weights are unchanged); if a
                score is not finite; or if the checkpoint is damaged or of another run.
        """
        corpora = self._corpora(source, target)
        options, device = self.options, next(self.model.parameters()).device
        rank, size = _rank_and_size()

        def make(rows: list[Any]) -> Any:
            batch = collate(rows)
            return batch.to(device) if hasattr(batch, "to") else to_device(batch, device)

        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            if size > 1:
                for tensor in self.parts.state_dict().values():
                    torch.distributed.broadcast(tensor.detach(), 0)
            phases = [
                (options.objective, options.num_train_epochs),
                ("joint", options.backoff_epochs),
            ]
            plans = {kind: Plan(kind, corpora, options, rank, size) for kind, _ in phases}
            turns = [(kind, turn) for kind, epochs in phases for turn in range(epochs)]
            steps = sum(plans[kind].steps for kind, _ in turns)
            optimizers = self.optimizer, self.meta_optimizer
            schedulers = [
                build(optimizer, steps)
                for optimizer, build in zip(optimizers, self.schedules, strict=True)
                if optimizer is not None and build is not None
            ]
            others = *optimizers, *schedulers
            about = self._about(corpora, size)
            state = TrainingState(self.parts, others, checkpoint=checkpoint, about=about)
            if size > 1:
                torch.distributed.barrier()  # all processes have read before the first one writes
            number = 0
            for epoch, (objective, turn) in enumerate(turns, start=1):
                plan = plans[objective]
                if epoch <= len(state.history):
                    number += plan.steps
                    continue
                if turn == 0:
                    state.restore_best()  # the back-off starts from the best epoch
                start = time.perf_counter()
                torch.manual_seed((options.seed * 1_000_003 + epoch) * size + rank)
                self.parts.train()
                total = 0.0
                shown = progress if rank == 0 else False
                for i in progress_bar(range(plan.steps), progress=shown, desc=f"epoch {epoch}"):
                    number += 1
                    batches = plan.arguments(turn * plan.steps + i, make)
                    found = self._step(objective, batches, number, epoch)
                    for scheduler in schedulers:
                        scheduler.step()
                    total += found.loss
                    if on_step is not None:
                        on_step(found)
                score = math.nan if evaluate is None else self._score(evaluate, epoch)
                state.add(Epoch(epoch, total / plan.steps, score, time.perf_counter() - start))
                if rank == 0:
                    state.save()
            state.restore_best()
        return state.result

    def _corpora(
        self, source: Rows | Mapping[str, Rows] | None, target: Rows
    ) -> dict[str | None, Rows]:
        """Return the data by language, the target last and under None."""
        needed = self.options.objective != "target_only" or self.options.backoff_epochs > 0
        named: Any = source if isinstance(source, Mapping) else {"source": source}
        if source is None or not needed:
            named = {}
        require(bool(named) or not needed, "source", "hold data of at least one language", "none")
        corpora: dict[str | None, Rows] = {**named, None: target}
        for language, rows in corpora.items():
            name = "target" if language is None else f"source {language!r}"
            require(len(rows) > 0, name, "hold at least one row", "none")
        return corpora

    def _step(
        self, objective: str, batches: dict[str, Any], number: int, epoch: int
    ) -> MetaXLTrainerStep:
        """Do step `number` of the run."""
        options = self.options
        rtn: Any = None if objective == "joint" else self.rtn  # the back-off has no network
        names = ("target_weight", "weight", "max_grad_norm", "meta_max_grad_norm", "amp_dtype")
        shared: dict[str, Any] = {name: getattr(options, name) for name in names}
        shared |= {"optimizer": self.optimizer, "meta_optimizer": self.meta_optimizer}
        shared |= {"loss": self.loss, **batches}
        try:
            if objective == "metaxl":
                loss, target_loss, norm, *others = metaxl_step(
                    self.model, rtn, self.layers, method=options.method, **shared
                )
                return MetaXLTrainerStep(number, epoch, loss, norm, target_loss, *others)
            # MetaXL's back-off weighs both losses alike, and the target alone has one loss
            if options.objective in ("metaxl", "target_only"):
                shared["target_weight"] = 1.0
            step = joint_step(self.model, rtn, self.layers, **shared)
        except ValueError as error:
            raise ValueError(f"{error} (step {number})") from error
        return MetaXLTrainerStep(number, epoch, step.loss, step.norm, meta_norm=step.meta_norm)

    def _score(self, evaluate: Callable[[nn.Module], float], epoch: int) -> float:
        """Evaluate in every process; the first one's score counts."""
        self.parts.eval()
        with torch.no_grad():
            scores = [float(evaluate(self.model))]
        if _rank_and_size()[1] > 1:
            torch.distributed.broadcast_object_list(scores, 0)
        found = f"{scores[0]} in epoch {epoch}"
        require(math.isfinite(scores[0]), "evaluate", "give a finite score", found)
        return scores[0]

    def _about(self, corpora: Mapping[str | None, Rows], size: int) -> dict[str, Any]:
        """Return what a resumed training must have in common with this one, as plain values."""
        places = {id(module): name for name, module in self.model.named_modules()}
        options = asdict(self.options)
        batches = size * options.pop("gradient_accumulation_steps")
        for name in ("batch_size", "target_batch_size"):
            options[name] = options[name] and options[name] * batches
        if self.options.source_temperature is not None:  # a language is drawn for each batch
            options["batches of a step"] = batches
        options["amp_dtype"] = str(options["amp_dtype"])
        if self.schedules == (None, None) and not self.options.backoff_epochs:
            del options["num_train_epochs"]
        return {
            **options,
            "model and rtn": ", ".join(map(sizes_of, self.parts.children())),
            "layers": [places.get(id(layer), class_name(layer)) for layer in self.layers],
            "rows": {str(name): len(rows) for name, rows in corpora.items()},
            "optimizers": self._optimizers,
        }


def _rank_and_size() -> tuple[int, int]:
    """Return the number of this process, and how many there are."""
    dist = torch.distributed
    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    return dist.get_rank(), dist.get_world_size()
