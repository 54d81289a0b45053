"""Train a character transliterator from pairs of spellings."""

import math
import random
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.optim import AdamW
from torch.optim.lr_scheduler import OneCycleLR

from polyembed._checks import check_positive, must, require
from polyembed.text.character_transliterator import CharacterTransliterator


def train_transliterator(
    pairs: Sequence[tuple[str, str]],
    *,
    model: CharacterTransliterator | None = None,
    num_train_epochs: int = 5,
    batch_size: int = 256,
    learning_rate: float = 3e-3,
    max_grad_norm: float = 1.0,
    seed: int = 0,
    progress: bool | None = None,
) -> CharacterTransliterator:
    """Train on ``-log p(target | source)``, the exact sum over all alignments.

    AdamW with one cycle of the learning rate. Order, dropout and a new model's weights are drawn from `seed` inside a
    fork of the global random state: on a CPU the same call gives the same model.

    Args:
        pairs: A word in the source script and in the target script; a pair that is there twice weighs twice.
            `synthetic_pairs` makes some out of Devanagari words. A pair whose target has more symbols than the source
            has frames cannot be aligned: it is left out, and a warning says how many were.
        model: What to train, in place, on the device that it is on; `CharacterTransliterator.for_pairs` if None.
        num_train_epochs: How many times each pair is seen.
        batch_size: Pairs a step, those of like length together.
        learning_rate: The highest of the cycle.
        max_grad_norm: Clip the gradient's norm to this.
        seed: Of everything random.
        progress: Whether to show a progress bar; if None, only on a terminal.

    Returns:
        The model, in evaluation mode.

    Raises:
        ValueError: No pairs or none that can be aligned, a pair with an empty side, or a symbol that the model does
            not have.

    Example:
        >>> pairs = [("ka", "का"), ("ki", "की"), ("ma", "मा"), ("mi", "मी")] * 50
        >>> model = train_transliterator(pairs, num_train_epochs=3, batch_size=10)
        >>> model.transliterate(["maki!"])
        ['माकी!']

    Deviations: no paper's.
    """
    check_positive(num_train_epochs=num_train_epochs, batch_size=batch_size)
    require(learning_rate > 0, "learning_rate", "be positive", learning_rate)
    require(max_grad_norm > 0, "max_grad_norm", "be positive", max_grad_norm)
    pairs = [_check_pair(index, pair) for index, pair in enumerate(pairs)]
    require(len(pairs) > 0, "pairs", "hold at least one pair", "none")
    with torch.random.fork_rng(devices=_devices(model)):
        torch.manual_seed(seed)
        if model is None:
            model = CharacterTransliterator.for_pairs(pairs)
        sources = model.encode([source for source, _ in pairs])
        targets = [_labels(model, f"pairs[{index}]", target) for index, (_, target) in enumerate(pairs)]
        kept = _fitting(sources.ne(0).sum(-1) * model.slots, targets)
        sources, targets = sources[kept], [targets[i] for i in kept]
        lengths = sources.ne(0).sum(-1)
        optimizer = AdamW(model.parameters(), lr=learning_rate)
        steps = num_train_epochs * math.ceil(len(targets) / batch_size)
        scheduler = OneCycleLR(optimizer, learning_rate, total_steps=max(steps, 2))
        batches = _batches(lengths.tolist(), num_train_epochs, batch_size, random.Random(seed))
        model.train()
        for batch in _progress(batches, steps, progress):
            loss = _loss(model, sources[batch, : int(lengths[batch].max())], [targets[i] for i in batch])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
            optimizer.step()
            scheduler.step()
    return model.eval()


def _loss(
    model: CharacterTransliterator, sources: Int[Tensor, "word letter"], targets: Sequence[Sequence[int]]
) -> Float[Tensor, ""]:
    """Compute the mean over words of ``-log p(target | source) / len(target)``."""
    device = model.linear.weight.device
    frames = model(sources.to(device)).flatten(1, 2).transpose(0, 1)
    labels = torch.tensor(list(chain.from_iterable(targets)), device=device)
    num_frames = (sources.ne(0).sum(-1) * model.slots).to(device)
    num_labels = torch.tensor(list(map(len, targets)), device=device)
    return F.ctc_loss(frames, labels, num_frames, num_labels)


def _batches(
    lengths: Sequence[int], num_train_epochs: int, batch_size: int, draw: random.Random
) -> Iterator[list[int]]:
    """Deal pairs of like length out together, in a new order each epoch."""
    for _ in range(num_train_epochs):
        order = list(range(len(lengths)))
        draw.shuffle(order)
        order = [
            i
            for start in range(0, len(order), 16 * batch_size)
            for i in sorted(order[start : start + 16 * batch_size], key=lambda i: lengths[i])
        ]
        batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
        draw.shuffle(batches)
        yield from batches


def _check_pair(index: int, pair: tuple[str, str]) -> tuple[str, str]:
    if isinstance(pair, str) or len(pair) != 2 or not all(isinstance(side, str) for side in pair):
        raise TypeError(must(f"pairs[{index}]", "be two strings", repr(pair)))
    require(all(pair), f"pairs[{index}]", "have a word on each side", repr(pair))
    return pair[0], unicodedata.normalize("NFC", pair[1])


def _labels(model: CharacterTransliterator, name: str, target: str) -> list[int]:
    for symbol in target:
        require(symbol in model.symbols, name, "be written with the model's symbols", repr(symbol))
    return [model.symbols.index(symbol) + 1 for symbol in target]


def _fitting(num_frames: Int[Tensor, " word"], targets: Sequence[Sequence[int]]) -> list[int]:
    """List the pairs with as many frames as labels, and one more for a blank between equal neighbours."""
    needed = [len(labels) + sum(a == b for a, b in pairwise(labels)) for labels in targets]
    kept = [i for i, frames in enumerate(num_frames.tolist()) if needed[i] <= frames]
    left_out = len(targets) - len(kept)
    require(left_out < len(targets), "pairs", "have as many frames as symbols, one at least", "none that has")
    if left_out:
        warnings.warn(f"{left_out} of {len(targets)} pairs left out: more symbols than frames", stacklevel=3)
    return kept


def _devices(model: CharacterTransliterator | None) -> list[torch.device]:
    device = torch.device("cpu") if model is None else model.linear.weight.device
    return [device] if device.type == "cuda" else []


def _progress(batches: Iterator[list[int]], steps: int, progress: bool | None) -> Iterator[list[int]]:
    from tqdm import tqdm

    disable = None if progress is None else not progress  # tqdm's None: off where there is no terminal
    yield from tqdm(batches, total=steps, desc="transliterator", leave=False, disable=disable)
