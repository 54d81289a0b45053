"""Tests that need a GPU.

The numbers equal the CPU's, forward passes do not make the host wait, and training moves its inputs
to the GPU.
"""

import copy
import warnings
from pathlib import Path

import pytest
import torch
from cases import CASES, DEVICE
from contracts import Case, each, result_and_gradients
from tiny_models import word_piece_tokenizer
from torch import Tensor, nn

import polyembed as pe
from polyembed.data import TaggedSentence, load_sample
from polyembed.training import MetaXLOptions

GPU = "cuda"

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.fixture(autouse=True)
def _all_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    # recurrent layers use TF32 by default
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def to_gpu(values: Tensor) -> Tensor:
    return values.to(GPU)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_same_numbers_as_on_the_cpu(case: Case):
    module = case.module(torch.float32)
    batch = case.batch(dtype=torch.float32)
    expected = case.call(copy.deepcopy(module), batch)
    found = case.call(module.to(GPU), each(batch, to_gpu))
    torch.testing.assert_close(found.cpu(), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("case", [case for case in CASES if case.trains], ids=lambda one: one.name)
def test_same_gradients_as_on_the_cpu(case: Case):
    module, batch = case.module(), case.batch()
    for part in module.modules():
        if isinstance(part, nn.RNNBase):
            part.train()  # in evaluation mode cuDNN computes no gradient
    expected = result_and_gradients(case, copy.deepcopy(module), batch)[1]
    found = result_and_gradients(case, module.to(GPU), each(batch, to_gpu))[1]
    for name, gradient in expected.items():
        assert (gradient is None) == (found[name] is None), name
        if gradient is not None:
            torch.testing.assert_close(found[name].cpu(), gradient, atol=1e-8, rtol=1e-6, msg=name)


LOOKS_FOR_PADDING = ("SequenceClassifier.pieces", "PairClassifier.joint", "PretrainedWordEncoder")
"""Cases over a model of transformers, which reads whether any piece is padding."""


@pytest.mark.parametrize(
    "case",
    [x for x in CASES if DEVICE not in x.exceptions and x.name not in LOOKS_FOR_PADDING],
    ids=lambda case: case.name,
)
def test_forward_does_not_wait(case: Case):
    module, batch = case.module(torch.float32).to(GPU), case.batch(dtype=torch.float32)
    batch = each(batch, to_gpu)
    case.call(module, batch)  # the first call builds some parts
    try:
        with warnings.catch_warnings(action="ignore"):  # torch calls this mode a prototype
            torch.cuda.set_sync_debug_mode("error")
        case.call(module, batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def small_tagger(train: list[TaggedSentence], freeze: str | None) -> pe.SequenceTagger:
    encoder = pe.PretrainedWordEncoder.scratch(
        word_piece_tokenizer(64), num_layers=2, hidden_size=16, num_heads=2, freeze=freeze
    )
    return pe.build_tagger(train, contextual=encoder.to(GPU))


@pytest.mark.parametrize(
    ("freeze", "dtype"), [("all", None), ("embeddings", None), ("embeddings", torch.bfloat16)]
)
def test_a_tagger_trained_there_tags_alike_anywhere(
    freeze: str, dtype: torch.dtype | None, tmp_path: Path
):
    train, dev = (load_sample("es-en", split) for split in ("train", "dev"))
    tagger = small_tagger(train, freeze)
    assert {value.device.type for value in tagger.parameters()} == {GPU}
    options = pe.training.FitOptions(num_train_epochs=2, amp_dtype=dtype)
    result = pe.fit(tagger, train[:60], dev[:10], options=options, progress=False)
    assert len(result.history) == 2
    texts = [[*one.words, "neverseen"] for one in dev]
    found = tagger.predict_n_best(texts, 1)
    assert {value.device.type for value in tagger.parameters()} == {GPU}
    tagger.save_pretrained(tmp_path)
    for device in ("cpu", GPU):
        again = pe.SequenceTagger.from_pretrained(tmp_path).to(device).predict_n_best(texts, 1)
        assert [one[0][0] for one in again] == [one[0][0] for one in found]
        expected = torch.tensor([one[0][1] for one in found])
        torch.testing.assert_close(
            torch.tensor([one[0][1] for one in again]), expected, atol=1e-3, rtol=1e-3
        )


def test_entities_votes_and_sets_are_those_of_the_cpu():
    train, dev = (load_sample("es-en", split, tag="entities") for split in ("train", "dev"))
    texts = [one.words for one in dev]
    members = [small_tagger(train, "all").double() for _ in range(2)]
    found, expected = (
        (
            pe.VotingEnsemble(members).to(device).predict(texts),
            [len(one) for one in members[0].predict_entities(texts, min_probability=0.01)],
            pe.tagging.ConformalTagger.calibrate(members[0], dev).predict_sets(texts),
        )
        for device in (GPU, "cpu")
    )
    assert found == expected


@pytest.mark.parametrize("objective", ["metaxl", "joint_rtn", "joint"])
def test_metaxl_trains_to_the_same_numbers(objective: str):
    def loss(model, batch):
        return nn.functional.cross_entropy(model(batch["x"]), batch["label"])

    rows = [{"x": torch.randn(5, dtype=torch.float64), "label": i % 3} for i in range(24)]
    states = []
    for device in ("cpu", GPU):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double().to(device)
        rtn = pe.RepresentationTransformationNetwork(7, bottleneck=3).double().to(device)
        options = MetaXLOptions(objective=objective, num_train_epochs=2, batch_size=4)
        trainer = pe.MetaXLTrainer(model, rtn, model[1], options=options, loss=loss)
        trainer.train(rows[:16], rows[16:], progress=False)
        states.append({name: value.cpu() for name, value in trainer.parts.state_dict().items()})
    torch.testing.assert_close(states[1], states[0], atol=1e-9, rtol=1e-7)
