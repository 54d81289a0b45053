"""Prediction does not change models, lexicons or sources, in any number of threads at once."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from cases import SIZES, hierarchical, vector_source
from checks import refused
from tiny_models import tiny_model, word_piece_tokenizer
from torch import nn
from toys import TAGS, ToyWordEncoder, compiles, toy_lexicon

import polyembed as pe
from polyembed._views import evaluation_view

UNSEEN = [["songs", "me", "cuando"], ["मुझे"], [], ["y", "songs"]]


def tagger(lexicon: pe.Lexicon, wrap=lambda embedder: embedder) -> pe.SequenceTagger:
    torch.manual_seed(0)
    embedder = wrap(hierarchical(lexicon))
    encoder = pe.TransformerSequenceEncoder(embedder.embedding_dim, **{**SIZES, "dropout": 0.5})
    model = pe.SequenceTagger(embedder, TAGS, encoder=encoder)
    nn.init.normal_(model.decoder.linear.weight, std=9)  # so that tags depend on words
    return model


def mixed(lexicon: pe.Lexicon) -> pe.SequenceTagger:
    embedder = pe.MetaEmbedding.concat([hierarchical(lexicon), ToyWordEncoder(5)])
    return pe.SequenceTagger(embedder, TAGS)


def fused(lexicon: pe.Lexicon) -> pe.SequenceTagger:
    """Build a tagger over fused layers of a transformers model.

    Transformers adds hooks at the first call that returns all layers. The hooks must not reach the
    model.
    """
    encoder = pe.PretrainedWordEncoder(
        tiny_model("bert"), word_piece_tokenizer(), fusion=pe.ScalarMix(4)
    )
    return pe.SequenceTagger(pe.MetaEmbedding.concat([hierarchical(lexicon), encoder]), TAGS)


MODELS = {
    "plain": tagger,
    "unique": lambda lexicon: tagger(lexicon, pe.UniqueWords),
    "baked": lambda lexicon: tagger(lexicon, pe.bake),
    "mixed": mixed,
    "fused": fused,
    "ensemble": lambda lexicon: pe.VotingEnsemble([mixed(lexicon), tagger(lexicon)]),
    "classifier": lambda lexicon: pe.SequenceClassifier(
        vector_source(lexicon), ["bad", "good"], pooling="mean"
    ),
}


def everything(model: nn.Module) -> dict[str, object]:
    """Return every attribute of every part, with copies of tensors, dicts and lists."""
    return {
        f"{name}.{key}": copy.deepcopy(value)
        if isinstance(value, torch.Tensor | dict | list)
        else value
        for name, part in model.named_modules()
        for key, value in (*vars(part).items(), *part.state_dict().items())
        if key not in ("_modules", "_parameters", "_buffers")
    }


@pytest.mark.parametrize("name", MODELS)
def test_predicting_changes_nothing(name):
    lexicon = toy_lexicon()
    model = MODELS[name](lexicon).train()
    parts, words = list(model.modules()), list(lexicon)
    before, state = everything(model), torch.get_rng_state()
    model.predict(UNSEEN)
    next(model.predict_stream(UNSEEN))
    refused(TypeError, r"\[1\] must be a list of words, got", model.predict, [["songs"], "abc"])
    after = everything(model)
    assert before.keys() == after.keys()
    for key, value in before.items():
        same = (
            torch.equal(value, after[key])
            if isinstance(value, torch.Tensor)
            else value == after[key]
        )
        assert same, key
    assert all(one is other for one, other in zip(parts, model.modules(), strict=True))
    assert list(lexicon) == words
    assert torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), state)


@compiles
def test_copies_of_compiled_parts_are_their_own():
    model = fused(toy_lexicon()).train()
    expected = model.predict_probabilities(UNSEEN)
    for part in (model.embedder, *model.embedder.embedders):
        part.compile(backend="eager")
    for one in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(one.predict_probabilities(UNSEEN), expected)
        for value in model.parameters():
            value.data.zero_()


def test_pairs_over_a_mixed_embedder():
    embedder = mixed(toy_lexicon()).embedder
    model = pe.PairClassifier(embedder, ["no", "yes"], pooling="mean")
    texts = [(["me"], ["songs", "y"]), (["cuando"], [])]
    items = [SimpleNamespace(first=a, second=b, label="yes") for a, b in texts]
    model(**model.collate(items)).backward()
    assert model.predict(texts) == [model.predict([text])[0] for text in texts]


@compiles
def test_compiled_parts_predict_without_dropout_and_know_unseen_words():
    model = tagger(toy_lexicon())
    expected = model.predict(UNSEEN)
    model.embedder.compile(backend="eager")
    model.encoder = torch.compile(model.encoder, backend="eager")
    assert model.predict(UNSEEN) == expected


def test_a_view_of_a_model_with_hooks_of_accelerate_has_no_dropout():
    hooks = pytest.importorskip("accelerate.hooks")
    model = tiny_model("bert", hidden_dropout_prob=0.5)
    hooks.add_hook_to_module(model, hooks.ModelHook())
    encoder = pe.PretrainedWordEncoder(model, word_piece_tokenizer()).train()
    view, pieces = evaluation_view(encoder), encoder.pieces(UNSEEN)
    assert torch.equal(view(pieces), encoder.eval()(pieces))
    model.scaled = partial(lambda _, by: by, model, by=3)
    assert evaluation_view(model.train()).scaled() == 3


@pytest.mark.parametrize("name", ["plain", "fused", "ensemble"])
def test_eight_threads_predict_as_one(name):
    """The two models share a lexicon, and the first model is in training mode.

    Each thread predicts other unseen words.
    """
    lexicon = toy_lexicon()
    models = [MODELS[name](lexicon).train(), tagger(lexicon)]
    texts = [[[f"{i}word{k}", "me", f"x{k % 5}", "song"] for k in range(12)] for i in range(8)]
    expected = [[model.predict(part) for part in texts] for model in models]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(2):
            jobs = [
                [pool.submit(model.predict, part, batch_size=4) for part in texts]
                for model in models
            ]
            assert [[job.result() for job in row] for row in jobs] == expected


def test_predicting_while_training_in_another_thread():
    model = tagger(toy_lexicon())
    frozen = copy.deepcopy(model)
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(lambda: [model.predict(UNSEEN) for _ in range(20)])
        while not job.done():
            model.train()
            assert all(part.training for part in model.modules())
    assert job.result() == [frozen.eval().predict(UNSEEN)] * 20
