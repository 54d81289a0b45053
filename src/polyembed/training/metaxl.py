"""The loop of MetaXL, and of the baselines it is compared with (Xia 2021)."""

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import default_collate

from polyembed._checks import check_choice, check_positive, class_name, is_count, must, require
from polyembed.functional.bilevel import METHODS as HYPERGRADIENTS
from polyembed.training._joint_step import Part, joint_step, learning
from polyembed.training._metaxl_run import Run, checksum, trained
from polyembed.training._ranks import Ranks, open_ranks
from polyembed.training._stream import Plan, Rows
from polyembed.training.runs import CHECKPOINT_NAME
from polyembed.training.state import Epoch, FitResult
from polyembed.transfer.layers import encoder_layer
from polyembed.transfer.metaxl import check_autocast, check_modules, check_norms, check_weight, metaxl_step, model_loss
from polyembed.transfer.rtn import listed

SOURCE = "source"
LABELS = ("tags", "labels", "label", "label_ids", "ner_tags")
METHODS = ("metaxl", "joint", "joint_rtn", "target_only")
Schedule: TypeAlias = Callable[[Optimizer, int], LRScheduler]


class TrainerStep(NamedTuple):
    """What one step saw; None for what its method does not have.

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


class MetaXLTrainer:
    """Train a model for a target language with the help of source languages (Xia 2021, algorithm 1).

    One argument makes a baseline, over the same batches and as many steps:

    - ``"metaxl"``: `metaxl_step` on a batch of each source language and one of the target.
    - ``"joint"``: a step along the gradient of ``L_s + L_t``, the mean of the source losses and the target loss.
    - ``"joint_rtn"``: the same, with source batches transformed; the network learns by the same loss (section 4.4).
    - ``"target_only"``: the target's data alone.

    An epoch is one pass over the largest data set (the source, as a rule); the others are read again and again. Of
    ``"target_only"`` it is one over the target's. Evaluation and prediction never see the network that transforms.

    *Back-off* (section 4.6): with `backoff_epochs`, the best epoch's model is then trained jointly, without the
    network, for so many epochs more; these take part in the choice of the best.

    *Order.* Every batch is full: one that a pass does not fill goes on with the next pass. Orders and dropout come from
    `seed` and the number of the pass or epoch alone, inside a fork of torch's random state; a run that was killed goes
    on from its last finished epoch to the very same numbers. What `collate` and `loss` draw from other generators is
    the caller's care.

    *Processes.* Where ``torch.distributed`` runs (or under `torchrun`), each process takes `batch_size` rows of each
    joined batch, and gradients are averaged: the numbers are those of one process with larger batches, dropout aside.
    All processes start from the first one's parameters and go by its score; the first one writes the checkpoint, which
    all must see.

    Args:
        model: What to train, on the device that it is on. Not wrapped, not compiled.
        rtn: The network that transforms, one for all languages, or an ``nn.ModuleDict`` with one for each; for several
            layers a list with one for each layer. None for the methods without.
        layer: After which layer: a number as `hidden_states` counts (see `encoder_layer`), a module, or several.
        method: One of the above.
        optimizer: Of the model; Adam with a learning rate of 3e-5 if None.
        meta_optimizer: Of `rtn`; the same if None.
        scheduler: From an optimiser and the number of steps to a scheduler, stepped after each step.
        meta_scheduler: The same for `meta_optimizer`.
        loss: From the model and a batch to the mean loss; by default ``model(**batch).loss``.
        target_weight: How much of the target batch's own loss is added to the inner loss of ``"metaxl"``; the authors'
            code has 1.
        weight: How much of the transform; see `transformed_output`.
        hypergradient: How meta-gradients are computed; see `polyembed.functional.hypergradient`.
        num_train_epochs: How many epochs.
        backoff_epochs: How many epochs of joint training follow.
        batch_size: Rows of each batch, in each process.
        gradient_accumulation_steps: Batches of each kind a step.
        max_grad_norm: Clip the norm of the model's gradient to this; None = never.
        meta_max_grad_norm: The same for the gradient of `rtn`.
        amp_dtype: Autocast the losses to this dtype, ``torch.bfloat16``.
        seed: Of order and dropout.

    Raises:
        ValueError: Options that are out of range, a compiled model, or a layer that cannot be found.
        TypeError: A wrapped model, or no network where the method needs one.

    Example:
        >>> from polyembed import RepresentationTransformationNetwork
        >>> model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
        >>> trainer = MetaXLTrainer(
        ...     model, RepresentationTransformationNetwork(7, bottleneck=3), layer=model[1],
        ...     loss=lambda model, batch: torch.nn.functional.cross_entropy(model(batch["x"]), batch["label"]),
        ...     num_train_epochs=2, batch_size=4,
        ... )
        >>> source = [{"x": torch.randn(5), "label": i % 3} for i in range(12)]
        >>> result = trainer.train(source, source[:3], evaluate=lambda model: 0.5)
        >>> len(result.history)
        2

    Deviations: the paper does not say how an epoch is counted (its code: by the source), nor optimisers, schedule and
    clipping. Its joint training is on the concatenation of source and target (section 2.1); its code, and this, take a
    batch of each a step. (For the concatenation, give it as the target of ``"target_only"``.) The paper has one source
    language at a time; its code goes through several one after the other, here each step has all. `metaxl_step` tells
    where its code differs from algorithm 1.
    """

    def __init__(
        self,
        model: nn.Module,
        rtn: nn.Module | Sequence[nn.Module] | None,
        layer: int | nn.Module | Sequence[int | nn.Module] = 12,
        *,
        method: str = "metaxl",
        optimizer: Optimizer | None = None,
        meta_optimizer: Optimizer | None = None,
        scheduler: Schedule | None = None,
        meta_scheduler: Schedule | None = None,
        loss: Callable[[nn.Module, Any], Tensor] = model_loss,
        target_weight: float = 0.0,
        weight: float | Sequence[float] | None = None,
        hypergradient: str = "forward_over_reverse",
        num_train_epochs: int = 20,
        backoff_epochs: int = 0,
        batch_size: int = 16,
        gradient_accumulation_steps: int = 1,
        max_grad_norm: float | None = 1.0,
        meta_max_grad_norm: float | None = None,
        amp_dtype: torch.dtype | None = None,
        seed: int = 0,
    ) -> None:
        check_choice("method", method, METHODS)
        check_choice("hypergradient", hypergradient, HYPERGRADIENTS)
        check_positive(
            num_train_epochs=num_train_epochs,
            batch_size=batch_size,
            gradient_accumulation_steps=gradient_accumulation_steps,
        )
        whole = is_count(backoff_epochs) and backoff_epochs >= 0
        require(whole, "backoff_epochs", "be an integer, 0 or more", backoff_epochs)
        check_weight(target_weight)
        check_norms(max_grad_norm=max_grad_norm, meta_max_grad_norm=meta_max_grad_norm)
        check_autocast("amp_dtype", amp_dtype)
        transforms = method in ("metaxl", "joint_rtn")
        if transforms and rtn is None:
            raise TypeError(must("rtn", f"be a module, or several, for method {method!r}", None))
        check_modules(model, rtn if transforms else [])
        self.model, self.rtn = model, rtn if transforms else None
        layers = listed(layer) if transforms else []
        self.layers = [one if isinstance(one, nn.Module) else encoder_layer(model, one) for one in layers]
        self.method = method
        networks = nn.ModuleList(listed(rtn) if transforms else [])
        self.parts = nn.ModuleDict({"model": model, "rtn": networks})
        metas = {id(p) for p in networks.parameters()}
        trained_ones = [p for p in model.parameters() if p.requires_grad and id(p) not in metas]
        require(bool(trained_ones), "model", "have a parameter that requires a gradient", "none")
        self.optimizer = optimizer if optimizer is not None else Adam(trained_ones, lr=3e-5)
        trains = bool(learning(dict(model.named_parameters()), self.optimizer))
        require(trains, "optimizer", "hold parameters of the model", "none")
        self.meta_optimizer = None
        if transforms:
            trained_ones = [p for p in networks.parameters() if p.requires_grad]
            require(bool(trained_ones), "rtn", "have a parameter that requires a gradient", "none")
            self.meta_optimizer = meta_optimizer if meta_optimizer is not None else Adam(trained_ones, lr=3e-5)
            trains = bool(learning(dict(networks.named_parameters()), self.meta_optimizer))
            require(trains, "meta_optimizer", "hold parameters of rtn", "none")
        self.schedules = (scheduler, meta_scheduler)
        self.loss = loss
        self.target_weight = target_weight
        self.weight = weight
        self.hypergradient = hypergradient
        self.num_train_epochs = num_train_epochs
        self.backoff_epochs = backoff_epochs
        self.batch_size = batch_size
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.max_grad_norm = max_grad_norm
        self.meta_max_grad_norm = meta_max_grad_norm
        self.amp_dtype = amp_dtype
        self.seed = seed

    def train(
        self,
        source: Rows | Mapping[str, Rows] | None,
        target: Rows,
        *,
        evaluate: Callable[[nn.Module], float] | None = None,
        collate: Callable[[list[Any]], Any] = default_collate,
        on_step: Callable[[TrainerStep], object] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: bool | None = None,
    ) -> FitResult:
        """Train, evaluate after each epoch, and leave the model (and `rtn`) with the best epoch's weights.

        Args:
            source: The source language's rows, or those of several by language. ``"target_only"`` needs none.
            target: The target language's rows.
            evaluate: The model's score on the development set, higher is better; the model is in eval mode, without
                gradients. If None, the last epoch is the best, and scores are NaN.
            collate: From a list of rows to a batch; by default torch's. Tensors in it are moved to the model's device.
            on_step: Called after each step, in every process.
            checkpoint: A folder for the state after each epoch; if it holds one, training goes on from there.
            progress: Whether to show a progress bar; if None, only on a terminal.

        Returns:
            The best epoch and the history; an epoch's loss is the mean of its steps'.

        Raises:
            TypeError: Data that is no rows.
            ValueError: No rows, labels that differ, languages without a network, a loss that is not finite (the
                message tells the step, which has changed nothing), or a checkpoint of another run.
            RuntimeError: Another process failed.
        """
        corpora = self._corpora(source, target)
        with open_ranks() as ranks:
            if ranks.size > 1:
                for tensor in self.parts.state_dict().values():
                    torch.distributed.broadcast(tensor.detach(), 0)
            plans = [self._plan(self.method, self.num_train_epochs, corpora, ranks)]
            if self.backoff_epochs:
                plans.append(self._plan("joint", self.backoff_epochs, corpora, ranks))
            run = self._run(sum(plan.steps * plan.epochs for plan in plans))
            path = None if checkpoint is None else Path(checkpoint) / CHECKPOINT_NAME
            fingerprint = {} if path is None and ranks.size == 1 else self._fingerprint(corpora, run, ranks)
            for theirs in ranks.gather(fingerprint):
                differs = [key for key, value in fingerprint.items() if theirs.get(key) != value]
                require(not differs, "train", "be called alike in every process", f"other {differs}")
            if path is not None:
                there = ranks.gather(path.exists())
                require(len(set(there)) == 1, "checkpoint", "be a folder that all processes see", there)
                if there[0]:
                    run.load(path, fingerprint, self._device)
            epoch, step = 0, 0
            with torch.random.fork_rng(devices=[self._device] if self._device.type == "cuda" else []):
                for plan in plans:
                    for turn in range(plan.epochs):
                        epoch, step = epoch + 1, step + plan.steps
                        if epoch <= len(run.history):
                            continue
                        if turn == 0 and run.history:
                            run.restore_best()  # the back-off starts there
                        start = time.perf_counter()
                        torch.manual_seed((self.seed * 1_000_003 + epoch) * ranks.size + ranks.rank)
                        self.parts.train()
                        total = 0.0
                        for i in _progress(plan.steps, False if ranks.rank else progress, f"epoch {epoch}"):
                            batches = plan.read(turn * plan.steps + i)
                            parts = [Part(_to(collate(rows), self._device), language) for language, rows in batches]
                            found = self._step(plan.method, parts, step - plan.steps + i + 1, epoch)
                            run.step_schedulers()
                            total += found.loss
                            if on_step is not None:
                                on_step(found)
                        score = self._score(evaluate, epoch, ranks)
                        run.finish(Epoch(epoch, total / plan.steps, score, time.perf_counter() - start))
                        if path is not None and ranks.rank == 0:
                            run.save(path, fingerprint)
            run.restore_best()
        return FitResult(run.best, tuple(run.history))

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _corpora(self, source: Rows | Mapping[str, Rows] | None, target: Rows) -> dict[str | None, Rows]:
        """Check the data; name them by language, the target last and by None."""
        needed = self.method != "target_only" or self.backoff_epochs > 0
        named: dict[str, Rows] = {}
        if source is not None and needed:
            named = dict(source) if isinstance(source, Mapping) else {SOURCE: source}
        require(bool(named) or not needed, "source", "hold data of at least one language", "none")
        for language, rows in named.items():
            _check_rows(f"source[{language!r}]" if isinstance(source, Mapping) else SOURCE, rows)
        _check_rows("target", target)
        for network in listed(self.rtn):
            if isinstance(network, nn.ModuleDict):
                unknown = ", ".join(map(repr, named.keys() - network.keys())) or None
                rule = f"be a mapping whose languages are among {', '.join(map(repr, network))}"
                found = unknown if isinstance(source, Mapping) else class_name(source)
                require(unknown is None, SOURCE, rule, found)
        _check_labels(named.values(), target)
        return dict([*named.items(), (None, target)])

    def _plan(self, method: str, epochs: int, corpora: Mapping[str | None, Rows], ranks: Ranks) -> Plan:
        return Plan(
            method,
            epochs,
            corpora,
            batch_size=self.batch_size,
            accumulated=self.gradient_accumulation_steps,
            seed=self.seed,
            rank=ranks.rank,
            size=ranks.size,
        )

    def _run(self, steps: int) -> Run:
        metas = [] if self.meta_optimizer is None else [self.meta_optimizer]
        optimizers = [self.optimizer, *metas]
        schedules = zip(optimizers, self.schedules, strict=False)
        return Run(self.parts, optimizers, [make(one, steps) for one, make in schedules if make is not None])

    def _step(self, method: str, parts: Sequence[Part], number: int, epoch: int) -> TrainerStep:
        """Take the run's step `number`."""
        if method == "metaxl":
            assert self.meta_optimizer is not None
            sources = [part for part in parts if part.language is not None]
            found = metaxl_step(
                self.model,
                listed(self.rtn),
                self.layers,
                [part.batch for part in sources],
                [part.batch for part in parts if part.language is None],
                optimizer=self.optimizer,
                meta_optimizer=self.meta_optimizer,
                loss=self.loss,
                languages=[str(part.language) for part in sources],
                target_weight=self.target_weight,
                weight=self.weight,
                method=self.hypergradient,
                max_norm=self.max_grad_norm,
                meta_max_norm=self.meta_max_grad_norm,
                autocast=self.amp_dtype,
                step=number,
            )
            losses = found.source_loss, found.source_norm, found.target_loss, found.meta_norm, found.cosine
            return TrainerStep(number, epoch, *losses)
        step = joint_step(
            self.model,
            parts,
            self.optimizer,
            transform=self.rtn if method == "joint_rtn" else None,
            layer=self.layers,
            meta_optimizer=self.meta_optimizer,
            weight=self.weight,
            loss=self.loss,
            max_norm=self.max_grad_norm,
            meta_max_norm=self.meta_max_grad_norm,
            autocast=self.amp_dtype,
            step=number,
        )
        return TrainerStep(number, epoch, step.loss, step.norm, meta_norm=step.meta_norm)

    def _score(self, evaluate: Callable[[nn.Module], float] | None, epoch: int, ranks: Ranks) -> float:
        """Evaluate in every process; the first one's score counts."""
        if evaluate is None:
            return math.nan
        self.parts.eval()
        with torch.no_grad():
            score = ranks.gather(ranks.together(lambda: float(evaluate(self.model))))[0]
        require(math.isfinite(score), "evaluate", "give a finite score", f"{score} in epoch {epoch}")
        return score

    def _fingerprint(self, corpora: Mapping[str | None, Rows], run: Run, ranks: Ranks) -> dict[str, Any]:
        """Tell what must be the same for a run to go on; the number of epochs, if anything is planned by it."""
        planned = bool(run.schedulers) or self.backoff_epochs > 0
        places = {id(module): name for name, module in self.model.named_modules()}
        return {
            "method": self.method,
            "seed": self.seed,
            "batch_size": self.batch_size * ranks.size * self.gradient_accumulation_steps,
            "rows": {str(language): [len(rows), checksum(rows)] for language, rows in corpora.items()},
            "layers": [places.get(id(layer), class_name(layer)) for layer in self.layers],
            "rtn": [f"{class_name(one)} {_config(one)}" for one in self.parts["rtn"].modules()],
            "hypergradient": self.hypergradient,
            "parameters": {name: [*value.shape, str(value.dtype)] for name, value in trained(self.parts).items()},
            "optimizers": [f"{class_name(one)} {one.defaults}" for one in run.optimizers],
            "schedulers": [class_name(one) for one in run.schedulers],
            "epochs": [self.num_train_epochs, self.backoff_epochs] if planned else None,
            "losses": [self.target_weight, str(self.weight), self.max_grad_norm, self.meta_max_grad_norm],
            "amp_dtype": str(self.amp_dtype),
        }


def _to(value: Any, device: torch.device) -> Any:
    """Move a batch's tensors."""
    if hasattr(value, "to"):
        return value.to(device)
    if isinstance(value, Mapping):
        return {name: _to(part, device) for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_to(part, device) for part in value))
    if isinstance(value, tuple | list):
        return type(value)(_to(part, device) for part in value)
    return value


def _check_rows(name: str, rows: Any) -> None:
    """Require a data set that can be read at any place."""
    if not hasattr(rows, "__len__") or not hasattr(rows, "__getitem__") or isinstance(rows, str | Mapping):
        raise TypeError(must(name, "be rows, with a length and an index (no loader, no iterator)", class_name(rows)))
    require(len(rows) > 0, name, "hold at least one row", "none")


def _config(module: Any) -> Any:
    return module.get_config() if hasattr(module, "get_config") else ""


def _check_labels(sources: Iterable[Rows], target: Rows) -> None:
    """Refuse label sets of which neither holds the other, and numbers that stand for other names.

    Rows in lists tell their labels, a `datasets.Dataset` its names of labels.
    """
    sources = list(sources)
    theirs: set[Any] = set().union(*map(_labels, sources))
    ours = _labels(target)
    if theirs and ours and theirs - ours and ours - theirs:
        rule = "be the sources', or the other way round"
        found = f"only the target has {sorted(map(repr, ours - theirs))[0]}"
        raise ValueError(must("the labels of target", rule, f"{found}, not {sorted(map(repr, theirs - ours))[0]}"))
    for rows in sources:
        for key, names in _label_names(target).items():
            for number, (our, their) in enumerate(zip(names, _label_names(rows).get(key, names), strict=False)):
                rule = f"count the labels in {key!r} as source does"
                require(our == their, "target", rule, f"{our!r} for {number}, which is {their!r} there")


def _labels(rows: Rows) -> set[Any]:
    """Collect the labels of rows in a list."""
    found: set[Any] = set()
    for row in rows if isinstance(rows, list | tuple) else ():
        for name in LABELS:
            found |= _names(row.get(name) if isinstance(row, Mapping) else getattr(row, name, None))
    return found - {-100}


def _names(labels: Any) -> set[Any]:
    """Collect labels, whatever holds them."""
    labels = labels.tolist() if hasattr(labels, "tolist") else labels
    if isinstance(labels, list | tuple):
        return {label for part in labels for label in _names(part)}
    return {labels} if isinstance(labels, str | int) else set()


def _label_names(rows: Any) -> dict[str, list[str]]:
    """Find what the numbers of a `datasets.Dataset` stand for."""
    found = {}
    for key, feature in dict(getattr(rows, "features", None) or {}).items():
        names = getattr(getattr(feature, "feature", feature), "names", None)  # of a sequence, those of its items
        if key in LABELS and names:
            found[key] = list(names)
    return found


def _progress(steps: int, progress: bool | None, description: str) -> Iterator[int]:
    from tqdm import tqdm

    disable = None if progress is None else not progress  # tqdm's None: off where there is no terminal
    yield from tqdm(range(steps), desc=description, leave=False, disable=disable)
