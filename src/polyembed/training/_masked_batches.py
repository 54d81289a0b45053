"""The batches of masked text that a step is given, the same for the same seed and step."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from polyembed._checks import require
from polyembed.training._masked_text import POOL, Example, ExampleEncoder, TextCorpus, chunked


class MaskedBatches:
    """The batches of each epoch, the same for the same seed and epoch."""

    def __init__(
        self,
        corpus: TextCorpus,
        encoder: ExampleEncoder,
        *,
        batch_size: int,
        shuffle_buffer: int,
        seed: int,
    ) -> None:
        self.corpus = corpus
        self.encoder = encoder
        self.batch_size = batch_size
        self.shuffle_buffer = shuffle_buffer
        self.seed = seed
        self.size: tuple[int, int] | None = (
            None  # batches and pieces of an epoch, where they were counted
        )

    def measure(self) -> tuple[int, int]:
        """Count the batches and the pieces of an epoch."""
        examples, pieces = 0, 0
        for example in self.encoder(self.corpus.open()):
            examples, pieces = examples + 1, pieces + example.size
        return -(-examples // self.batch_size), pieces

    def __call__(self, epoch: int) -> Iterator[list[Example]]:
        rng = random.Random(f"texts {self.seed} {epoch}")
        examples = self.encoder(self.corpus.shuffled(rng, self.shuffle_buffer))
        order = random.Random(
            f"batches {self.seed} {epoch}"
        )  # `rng` is used while examples are read
        for pool in chunked(examples, POOL * self.batch_size):
            pool.sort(key=lambda example: len(example.ids))
            batches = list(chunked(pool, self.batch_size))
            order.shuffle(batches)
            yield from batches


class MaskedStream(IterableDataset[dict[str, Tensor]]):
    """The batches of steps `start` to `stop`, over as many epochs as that takes."""

    def __init__(
        self,
        batches: MaskedBatches,
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
            require(
                step > begun, "texts", f"hold text for {self.stop} steps", f"an end after {step}"
            )
            epoch += 1


def make_collator(
    tokenizer: Any, mlm_probability: float, *, whole_word_mask: bool, mask_switches: bool, seed: int
) -> Callable[[list[Example], int], dict[str, Tensor]]:
    """Return the function that masks a batch of a step, by transformers' own collator."""
    from transformers import DataCollatorForLanguageModeling

    # the collator always replaces whole words by mask pieces, and warns unless these arguments say
    # so
    shares: dict[str, Any] = (
        {"mask_replace_prob": 1.0, "random_replace_prob": 0.0} if whole_word_mask else {}
    )
    # with priorities, the pieces that are not to be masked are special to the collator, and it
    # masks all others
    probability = 1.0 if mask_switches else mlm_probability
    # without a seed, else transformers 5.24 replaces the generator that a step is given
    collator = DataCollatorForLanguageModeling(
        tokenizer, mlm_probability=probability, whole_word_mask=whole_word_mask, **shares
    )

    def collate(batch: list[Example], step: int) -> dict[str, Tensor]:
        collator.generator = torch.Generator().manual_seed(step_seed("mask", seed, step))
        longest = max(len(example.ids) for example in batch)
        features = []
        for example in batch:
            kept = (
                _draw(example, mlm_probability, collator.generator)
                if mask_switches
                else example.special
            )
            feature: dict[str, Any] = {"input_ids": example.ids, "special_tokens_mask": kept}
            if whole_word_mask:
                offsets = _word_offsets(example.word_ids)
                feature["offset_mapping"] = offsets + [(0, 0)] * (longest - len(offsets))
            features.append(feature)
        real = torch.tensor(
            [[not s for s in one.special] + [False] * (longest - len(one.ids)) for one in batch]
        )
        found = dict(collator(features))
        if not (found["labels"] != -100).any():  # the mean over no piece would be NaN
            candidates = real.nonzero()
            chosen = torch.randint(len(candidates), (), generator=collator.generator)
            row, column = candidates[chosen].tolist()
            found["labels"][row, column] = found["input_ids"][row, column]
            found["input_ids"][row, column] = tokenizer.mask_token_id
        return found

    return collate


def _draw(example: Example, mlm_probability: float, generator: torch.Generator) -> list[int]:
    """Draw the pieces to mask, those with priority first; return 1 for each of the others."""
    maskable, first = ~torch.tensor(example.special).bool(), torch.tensor(example.priority)
    count, wanted = int(first.sum()), mlm_probability * example.size
    share = min(1.0, wanted / max(count, 1))
    rest = (wanted - share * count) / max(example.size - count, 1)
    drawn = torch.rand(len(first), generator=generator) < torch.where(first, share, rest)
    kept: list[int] = (~(drawn & maskable)).long().tolist()
    return kept


def _word_offsets(word_ids: list[int | None]) -> list[tuple[int, int]]:
    """Return offsets from which the collator finds the words: pieces that touch belong to one word.

    Real offsets join words in scripts without spaces, and wherever the space belongs to a piece.
    """
    offsets, last, place = [], None, 0
    for word in word_ids:
        place += word is None or word != last
        offsets.append((place, place + 1))
        place, last = place + 1, word
    return offsets


def step_seed(purpose: str, seed: int, step: int) -> int:
    """Return a hashed seed: generators that are seeded with small neighbouring numbers begin alike."""
    return random.Random(f"{purpose} {seed} {step}").getrandbits(63)
