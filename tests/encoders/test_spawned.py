"""Encoders in a newly started process, which lacks the state of transformers in this process."""

import multiprocessing
import pickle
from typing import Any

import pytest
import torch
from tiny_models import tiny_model, word_piece_tokenizer

import polyembed as pe

SENTENCES = [["me", "gusta"], ["song"]]


def encode(pickled: list[bytes], queue: Any) -> None:
    for content in pickled:
        encoder = pickle.loads(content)
        queue.put(encoder(encoder.encode(SENTENCES)[0]).tolist())


@pytest.mark.slow
def test_spawned_processes_give_the_same():
    encoders = [
        pe.PretrainedWordEncoder(
            tiny_model(name), word_piece_tokenizer(), fusion=pe.ScalarMix(4)
        ).eval()
        for name in ("bert", "deberta-v3", "gemma3")
    ]
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=encode, args=([pickle.dumps(e) for e in encoders], queue))
    process.start()
    for encoder in encoders:
        expected = encoder(encoder.encode(SENTENCES)[0])
        torch.testing.assert_close(torch.tensor(queue.get(timeout=120)), expected)
    process.join()
    assert process.exitcode == 0
