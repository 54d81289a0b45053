"""A rotation between two spaces without a known pair of words, by a discriminator that cannot tell
them apart.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from polyembed._batches import progress_bar
from polyembed._checks import check_positive, check_probability, require
from polyembed.functional.alignment import length_normalize, procrustes
from polyembed.functional.neighbors import mutual_csls

CRITERION_WORDS = 10_000  # the most frequent words, by whose neighbours a mapping is judged
SLOPE = 0.2  # the slope of the discriminator's leaky rectifiers
MIN_RATE = 1e-6  # a run ends where the mapping's learning rate is below this rate


@dataclass(frozen=True, kw_only=True)
class AdversarialOptions:
    """The settings of a first mapping without pairs in `align_spaces`; defaults as in MUSE's code.

    Attributes:
        restarts: The number of runs, with the seeds ``seed``, ``seed + 1``, ...
        num_epochs: The number of epochs per run.
        epoch_size: The number of vectors per language that the mapping learns from in an epoch.
        batch_size: The number of vectors per language in a step.
        discriminator_steps: The number of discriminator steps before each step of the mapping.
        hidden_size: The size of the discriminator's layers.
        most_frequent: The number of most frequent words that the steps draw from.
        dropout: The dropout probability of the discriminator's input.
        smoothing: The smoothing ``s`` of the labels, which are ``1 - s`` and ``s``.
        learning_rate: The learning rate of the discriminator, and of the mapping at the start.
        decay: The factor of the mapping's learning rate after each epoch.
        beta: The size of the step back to the orthogonal matrices.
        seed: The seed of the discriminator's weights, the draws and the dropout.
        progress: Whether to show a progress bar; if None, only on a terminal.

    Raises:
        ValueError: If a size, a probability or the learning rate is out of range.
    """

    restarts: int = 1
    num_epochs: int = 5
    epoch_size: int = 1_000_000
    batch_size: int = 32
    discriminator_steps: int = 5
    hidden_size: int = 2048
    most_frequent: int = 75_000
    dropout: float = 0.1
    smoothing: float = 0.1
    learning_rate: float = 0.1
    decay: float = 0.98
    beta: float = 0.001
    seed: int = 0
    progress: bool | None = None

    def __post_init__(self) -> None:
        counts = (
            "restarts",
            "num_epochs",
            "epoch_size",
            "batch_size",
            "discriminator_steps",
            "hidden_size",
            "most_frequent",
        )
        check_positive(**{name: getattr(self, name) for name in counts})
        check_probability(dropout=self.dropout, smoothing=self.smoothing)
        require(self.learning_rate > 0, "learning_rate", "be positive", self.learning_rate)


def mapping_criterion(
    x: Float[Tensor, "n dim"], y: Float[Tensor, "m dim"], *, neighborhood: int = 10
) -> float:
    """Compute how well two spaces match: the mean cosine of rows that are mutually nearest by CSLS.

    The criterion needs no pair of words, and correlates with the precision of a mapping (Lample
    2018, section 2.4).

    Args:
        x: The mapped space, ``(n, dim)``, the most frequent word first; the first 10,000 rows
            count.
        y: The other space, ``(m, dim)``, in the same order; its first 10,000 rows count.
        neighborhood: The ``k`` of `csls`.

    Returns:
        The criterion, at most 1; 0 where no rows are mutual neighbours.

    Example:
        >>> round(mapping_criterion(torch.eye(5), 2 * torch.eye(5), neighborhood=2), 4)
        1.0

    Deviations: the paper averages over the nearest target word of each source word, mutual or not.
    """
    x, y = x[:CRITERION_WORDS], y[:CRITERION_WORDS]
    pairs = mutual_csls(x, y, neighborhood=neighborhood)
    cosines = (length_normalize(x[pairs[:, 0]]) * length_normalize(y[pairs[:, 1]])).sum(1)
    return float(cosines.mean()) if len(pairs) else 0.0


def adversarial_mapping(
    x: Float[Tensor, "n dim"], y: Float[Tensor, "m dim"], options: AdversarialOptions
) -> tuple[Float[Tensor, "dim dim"], list[list[float]]]:
    """Learn a rotation by which a discriminator cannot tell `x` from `y` (Lample 2018, section
    2.1).

    The discriminator ``D`` (two hidden layers, leaky rectifiers) minimises the cross-entropy of
    telling ``x W`` from ``y`` with labels smoothed by ``s``. The mapping ``W`` starts as the
    identity and minimises the cross-entropy of the wrong answers. After each step,
    ``W <- (1 + beta) W - beta W W' W`` keeps ``W`` near the orthogonal matrices (their equation 7).
    ``D`` has dropout in its input while it learns, and none while ``W`` learns from it.

    Both learn by plain SGD. The rate of ``D`` is constant. The rate of ``W`` is multiplied by
    ``decay`` after each epoch, with 1e-6 as its minimum. This rate is also halved after each epoch
    whose criterion is below the run's best, except the first such epoch. A run ends early where
    halving leads below 1e-6.

    After each epoch the orthogonal matrix nearest to ``W`` is judged by `mapping_criterion`; the
    best of all epochs and restarts is returned. A run either finds the rotation or fails. The
    criterion shows a failure without a dictionary: restart where the criterion stays low.

    Args:
        x: Source vectors, finite, ``(n, dim)``, the most frequent word first, not normalised: the
            learning rate suits numbers around 1.
        y: Target vectors, ``(m, dim)``.
        options: The sizes, rates and seeds.

    Returns:
        The best matrix, and the criterion after each epoch, one list per restart.

    Raises:
        ValueError: If a mapping is not finite, because the learning rate or ``beta`` is too high or
            the vectors are too long.

    Example:
        >>> x, y = torch.randn(20, 3), torch.randn(30, 3)
        >>> options = AdversarialOptions(num_epochs=2, epoch_size=64, hidden_size=8)
        >>> weight, criteria = adversarial_mapping(x, y, options)
        >>> weight.shape, len(criteria[0])
        (torch.Size([3, 3]), 2)

    Deviations: MUSE judges the mapping itself, by the nearest neighbour of each source word; here
    the nearest orthogonal matrix is judged and returned, by mutual neighbours. An epoch has
    ``epoch_size // batch_size`` steps, where MUSE rounds up. Restarts are added.
    """
    best, best_score = torch.eye(x.shape[1]).to(x), float("-inf")
    steps = range(max(1, options.epoch_size // options.batch_size))
    criteria: list[list[float]] = []
    for restart in range(options.restarts):
        game = _Game(x, y, options, restart)
        scores: list[float] = []
        rate, fell = options.learning_rate, False
        for epoch in range(options.num_epochs):
            description = f"restart {restart + 1}, epoch {epoch + 1}"
            for _ in progress_bar(steps, progress=options.progress, desc=description):
                for _ in range(options.discriminator_steps):
                    game.step(options.learning_rate, fooled=False)
                game.step(rate, fooled=True)
            weight = game.orthogonal()
            scores.append(mapping_criterion(x @ weight, y))
            if scores[-1] > best_score:
                best, best_score = weight, scores[-1]
            rate = min(rate, max(MIN_RATE, options.decay * rate))
            if scores[-1] < max(scores):
                rate, fell = rate / 2 if fell else rate, True
            if rate < MIN_RATE:
                break
        criteria.append(scores)
    return best, criteria


class _Game:
    """A mapping and a discriminator that learn against one another, with a random generator of
    their own.
    """

    def __init__(self, x: Tensor, y: Tensor, options: AdversarialOptions, restart: int) -> None:
        self.x, self.y = x[: options.most_frequent], y[: options.most_frequent]
        self.options = options
        self.generator = torch.Generator(x.device).manual_seed(int(options.seed) + restart)
        self.weight = torch.eye(x.shape[1]).to(x).requires_grad_()
        self.layers = []  # weights and, in the last column, biases
        hidden = options.hidden_size
        for fan_in, fan_out in pairwise((x.shape[1], hidden, hidden, 1)):
            layer = 2 * self._uniform(fan_out, fan_in + 1) - 1
            self.layers.append((layer * fan_in**-0.5).requires_grad_())

    def step(self, rate: float, *, fooled: bool) -> None:
        """Update the discriminator, to separate the languages; if `fooled`, the mapping, towards
        the wrong answers and back to orthogonal matrices.
        """
        parameters = [self.weight] if fooled else self.layers
        gradients = torch.autograd.grad(self._loss(fooled=fooled), parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(rate * gradient)
            if fooled:
                w, beta = self.weight, self.options.beta
                w.copy_((1 + beta) * w - beta * (w @ w.mT) @ w)

    def orthogonal(self) -> Tensor:
        """Return the orthogonal matrix nearest to the mapping."""
        weight = self.weight.detach()
        rule = "be so small that the mapping stays finite"
        finite = bool(weight.isfinite().all())
        require(finite, "learning_rate, beta and the vectors", rule, "NaN or an infinity")
        return procrustes(torch.eye(len(weight)).to(weight), weight)

    def _loss(self, *, fooled: bool) -> Tensor:
        """Return the discriminator's loss over vectors drawn of both languages; if `fooled`, its
        loss with the wrong answers, without dropout.
        """
        dropout, smoothing = self.options.dropout, self.options.smoothing
        size = (self.options.batch_size,)
        x, y = (
            rows[torch.randint(len(rows), size, generator=self.generator, device=rows.device)]
            for rows in (self.x, self.y)
        )
        hidden = torch.cat([x @ self.weight, y])  # (2 * batch_size, dim)
        if not fooled:
            hidden = hidden * (self._uniform(*hidden.shape) >= dropout) / (1 - dropout)
        for layer in self.layers:
            scores = F.linear(hidden, layer[:, :-1], layer[:, -1])
            hidden = F.leaky_relu(scores, SLOPE)
        logits = scores[:, 0]  # the last layer has no rectifier
        labels = torch.full_like(logits, smoothing)
        labels[: len(labels) // 2] = 1 - smoothing
        return F.binary_cross_entropy_with_logits(logits, 1 - labels if fooled else labels)

    def _uniform(self, *shape: int) -> Tensor:
        like = self.x
        return torch.rand(shape, generator=self.generator, dtype=like.dtype, device=like.device)
