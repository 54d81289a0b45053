"""Train a character transliterator from pairs of spellings."""

import math
import random
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch.optim import AdamW
from torch.optim.lr_scheduler import OneCycleLR

from polyembed._checks import check_positive, must, require
from polyembed.text.character_transliterator import PAD, CharacterTransliterator


def train_transliterator(
    pairs: Sequence[tuple[str, str]],
    *,
    model: CharacterTransliterator | None = None,
    num_train_epochs: int = 15,
    batch_size: int = 64,
    learning_rate: float = 2e-3,
    seed: int = 0,
    progress: bool | None = None,
) -> CharacterTransliterator:
    """Train on the cross-entropy of the target's symbols, with label smoothing of 0.1.

    AdamW with one cycle of the learning rate; the gradient's norm is clipped to 1. Order, dropout
    and a new model's weights are drawn from `seed` inside a fork of the global random state: on a
    CPU the same call gives the same model.

    Args:
        pairs: A word in the source script and in the target script; a pair that is listed twice
            weighs twice.
        model: What to train, in place, on its device; `CharacterTransliterator.for_pairs` if None.
        num_train_epochs: How many times each pair is seen.
        batch_size: Pairs a step, of similar length.
        learning_rate: The highest of the cycle.
        seed: The seed of everything random.
        progress: Whether to show a progress bar; if None, only on a terminal.

    Returns:
        The model, in evaluation mode.

    Raises:
        ValueError: No pairs, a pair with an empty side, or a symbol that the model does not have.
        TypeError: A pair that is not two strings.

    Example:
        >>> pairs = [("kam", "काम"), ("nam", "नाम"), ("ram", "राम")] * 100
        >>> model = train_transliterator(pairs, num_train_epochs=3, batch_size=10)
        >>> model.transliterate(["Ram!"])
        ['राम!']
    """
    check_positive(num_train_epochs=num_train_epochs, batch_size=batch_size)
    require(learning_rate > 0, "learning_rate", "be positive", learning_rate)
    for index, pair in enumerate(pairs):
        if (
            isinstance(pair, str)
            or len(pair) != 2
            or not all(isinstance(side, str) for side in pair)
        ):
            raise TypeError(must(f"pairs[{index}]", "be two strings", repr(pair)))
        require(all(pair), f"pairs[{index}]", "have a word on each side", repr(pair))
    require(len(pairs) > 0, "pairs", "hold at least one pair", "none")
    device = torch.device("cpu") if model is None else model.network.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        model = CharacterTransliterator.for_pairs(pairs) if model is None else model
        sources = model.encode([source for source, _ in pairs])
        targets = model.encode_targets([target for _, target in pairs])
        lengths = torch.stack([sources.ne(PAD).sum(-1), targets.ne(PAD).sum(-1)], -1)
        optimizer = AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.98))
        steps = num_train_epochs * math.ceil(len(pairs) / batch_size)
        scheduler = OneCycleLR(
            optimizer, learning_rate, total_steps=max(steps, 2), pct_start=0.1, cycle_momentum=False
        )
        batches = _batches(lengths.tolist(), num_train_epochs, batch_size, random.Random(seed))
        model.train()
        for batch in _progress(batches, steps, progress):
            letters, symbols = lengths[batch].amax(0).tolist()
            x, y = sources[batch, :letters].to(device), targets[batch, :symbols].long().to(device)
            scores = model.logits(x, y).flatten(0, 1)
            loss = F.cross_entropy(scores, y.flatten(), ignore_index=PAD, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
    return model.eval()


def _batches(
    lengths: Sequence[list[int]], num_train_epochs: int, batch_size: int, draw: random.Random
) -> Iterator[list[int]]:
    """Group pairs of like length, in a new order each epoch."""
    for _ in range(num_train_epochs):
        order = list(range(len(lengths)))
        draw.shuffle(order)
        order = [
            i
            for start in range(0, len(order), 32 * batch_size)
            for i in sorted(order[start : start + 32 * batch_size], key=lambda i: lengths[i])
        ]
        batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
        draw.shuffle(batches)
        yield from batches


def _progress(
    batches: Iterator[list[int]], steps: int, progress: bool | None
) -> Iterator[list[int]]:
    from tqdm import tqdm

    disable = None if progress is None else not progress  # tqdm's None: off without a terminal
    yield from tqdm(batches, total=steps, desc="transliterator", leave=False, disable=disable)
