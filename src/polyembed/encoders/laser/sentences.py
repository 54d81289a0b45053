"""LASER's sentence vectors, for whole corpora, and search among them."""

import copy
import multiprocessing
import pickle
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from polyembed._checks import check_device, check_positive, check_words, class_name, must, require
from polyembed.encoders.laser.encoder import LaserEncoder
from polyembed.encoders.laser.words import check_tokenizer
from polyembed.functional.alignment import length_normalize
from polyembed.functional.neighbors import Nearest, nearest_cosine
from polyembed.saving import PretrainedModule
from polyembed.text.laser import LaserTokenizer
from polyembed.text.pieces import Pieces

CHUNK = 64  # batches in one job of a worker process


class LaserSentences(PretrainedModule):
    """Language-independent vectors of sentences: ``max_i [h_L(i) forwards; h_L(i) backwards]``.

    The numbers are equal to LASER's own tools' (Artetxe and Schwenk 2019): the encoder reads the
    pieces of a sentence and ``</s>``, and the vector is the maximum of the last layer over all of
    them.

    Args:
        encoder: A `LaserEncoder`.
        tokenizer: Cuts sentences into its pieces. ``LaserSentences(*load_laser())`` has both.

    Shape:
        `Pieces` ``(batch, piece)`` to ``(batch, 2 * hidden_size)``.

    Raises:
        ValueError: A tokeniser for another number of pieces.
        TypeError: An encoder that is not a `LaserEncoder`, another tokeniser.

    Example:
        >>> from polyembed.text import FastBPETokenizer, PieceDictionary
        >>> dictionary = PieceDictionary.from_pieces(["hola", "song"])
        >>> merges = [("h", "o"), ("l", "a</w>"), ("ho", "la</w>"), ("s", "o"), ("n", "g</w>"), ("so", "ng</w>")]
        >>> encoder = LaserEncoder(len(dictionary), 4, 3, num_layers=2)
        >>> sentences = LaserSentences(encoder, FastBPETokenizer(merges, dictionary))
        >>> sentences.encode(["hola", "hola song", ""]).shape
        torch.Size([3, 6])
    """

    def __init__(self, encoder: LaserEncoder, tokenizer: LaserTokenizer) -> None:
        if not isinstance(encoder, LaserEncoder):
            raise TypeError(must("encoder", "be a LaserEncoder", class_name(encoder)))
        check_tokenizer(tokenizer, encoder.num_embeddings)
        super().__init__()
        self.encoder = encoder
        self.tokenizer = tokenizer

    @property
    def embedding_dim(self) -> int:
        """The size of a sentence's vector."""
        return 2 * self.encoder.hidden_size

    def forward(self, pieces: Pieces) -> Float[Tensor, "batch dim"]:
        """Encode sentences cut by `LaserTokenizer.text_pieces`."""
        vectors: Tensor = self.encoder(pieces.piece_ids, pieces.piece_mask)
        return vectors

    def encode(
        self,
        texts: Sequence[str],
        *,
        batch_size: int = 32,
        normalize: bool = False,
        devices: Sequence[str | torch.device] | None = None,
        progress: bool | None = None,
    ) -> Float[Tensor, "sentence dim"]:
        """Encode whole sentences without a graph, in batches of similar length.

        Args:
            texts: Sentences; an empty one has ``</s>`` alone.
            batch_size: Sentences in a batch.
            normalize: Whether to scale each vector to length 1.
            devices: One process for each, ``["cpu"] * 4`` or ``["cuda:0", "cuda:1"]``, with a copy
                of the module; if None, this process, on the module's device. A program that starts
                processes needs ``if __name__ == "__main__"``.
            progress: Whether to show a progress bar; if None, only on a terminal.

        Returns:
            A row for each sentence, in the order given, on the CPU.

        Raises:
            TypeError: A single string, or an item that is not a string.
            ValueError: No device, or one that this machine does not have.
        """
        texts = check_words(texts, name="texts")
        check_positive(batch_size=batch_size)
        if devices is None:
            vectors = self._encode_here(texts, batch_size, progress)
        else:
            vectors = self._encode_there(texts, batch_size, _check_devices(devices), progress)
        return length_normalize(vectors) if normalize else vectors

    def nearest(
        self, queries: Sequence[str] | Tensor, keys: Sequence[str] | Tensor, k: int = 1
    ) -> Nearest:
        """Return the sentences that are nearest by cosine.

        Args:
            queries: Sentences, or vectors of `encode`.
            keys: The sentences to search, or their vectors.
            k: How many for each query.

        Returns:
            Scores and rows of `keys`, the best first, ``(query, k)``.
        """
        sides = [
            side if isinstance(side, Tensor) else self.encode(side) for side in (queries, keys)
        ]
        return nearest_cosine(sides[0], sides[1], k)

    @torch.no_grad()
    def _encode_here(self, texts: Sequence[str], batch_size: int, progress: bool | None) -> Tensor:
        cut = [self.tokenizer.cut_text(text) for text in texts]
        order = sorted(
            range(len(cut)), key=lambda i: -len(cut[i].ids)
        )  # the batch that needs most memory first
        weight = self.encoder.embed_tokens.weight
        vectors = torch.empty(len(cut), self.embedding_dim, dtype=weight.dtype)
        batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
        for batch in _progress(batches, progress):
            vectors[batch] = self(
                self.tokenizer.join(cut[i] for i in batch).to(weight.device)
            ).cpu()
        return vectors

    def _encode_there(
        self, texts: Sequence[str], batch_size: int, devices: list[str], progress: bool | None
    ) -> Tensor:
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        size = max(1, min(CHUNK * batch_size, -(-len(order) // len(devices))))
        chunks = [order[i : i + size] for i in range(0, len(order), size)]
        weight = self.encoder.embed_tokens.weight
        vectors = torch.empty(len(texts), self.embedding_dim, dtype=weight.dtype)
        context = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA
        free: Any = context.Queue()
        for device in devices:
            free.put(device)
        pickled = pickle.dumps(copy.deepcopy(self).cpu())
        threads = max(1, torch.get_num_threads() // len(devices))
        with ProcessPoolExecutor(
            len(devices), mp_context=context, initializer=_start, initargs=(pickled, free, threads)
        ) as pool:
            jobs = [pool.submit(_work, [texts[i] for i in chunk], batch_size) for chunk in chunks]
            try:
                for chunk, job in _progress(list(zip(chunks, jobs, strict=True)), progress):
                    vectors[chunk] = torch.from_numpy(job.result()).to(weight.dtype)
            except BrokenProcessPool as error:
                error.add_note("A program that starts processes needs: if __name__ == '__main__'")
                raise
            finally:
                for job in jobs:
                    job.cancel()
        return vectors


_module: LaserSentences | None = None
"""The copy that a worker process uses."""


def _check_devices(devices: Sequence[str | torch.device]) -> list[str]:
    """Require devices that this machine has, before worker processes fail without a reason."""
    if isinstance(devices, str | torch.device):
        raise TypeError(must("devices", "be a sequence of devices", f"{devices!r} alone"))
    require(len(devices) > 0, "devices", "name at least one", devices)
    return [str(check_device(f"devices[{place}]", given)) for place, given in enumerate(devices)]


def _start(pickled: bytes, free: Any, threads: int) -> None:
    global _module
    torch.set_num_threads(threads)
    _module = pickle.loads(pickled).to(free.get())


def _work(texts: list[str], batch_size: int) -> npt.NDArray[Any]:
    assert _module is not None
    vectors = _module._encode_here(texts, batch_size, progress=False)
    return vectors.to(
        torch.promote_types(vectors.dtype, torch.float32)
    ).numpy()  # numpy has no bfloat16


def _progress(items: list[Any], progress: bool | None) -> Iterator[Any]:
    from tqdm import tqdm

    disable = None if progress is None else not progress  # tqdm's None: off without a terminal
    yield from tqdm(items, desc="sentences", leave=False, disable=disable)
