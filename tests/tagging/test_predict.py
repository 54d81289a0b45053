"""Predicting writes to nothing: not to models, lexicons or sources, in any number of threads at once."""

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest
import torch
from cases import SIZES, characters, hierarchical, vector_source
from tiny_models import tiny_model, word_piece_tokenizer
from torch import nn
from toys import SENTENCES, TAGS, WORDS, ToyWordEncoder, toy_corpus, toy_lexicon

import polyembed as pe
from polyembed.tagging import TextModel, to_device


class Pair(NamedTuple):
    first: list[str]
    second: list[str]
    label: str


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
    """Transformers adds hooks at the first call that returns all layers: they must not reach the model."""
    encoder = pe.PretrainedWordEncoder(
        tiny_model("bert"), word_piece_tokenizer(), fusion=pe.ScalarMix(4)
    )
    return pe.SequenceTagger(pe.MetaEmbedding.concat([hierarchical(lexicon), encoder]), TAGS)


def pairs(lexicon: pe.Lexicon) -> pe.PairClassifier:
    embedder = pe.MetaEmbedding.concat([hierarchical(lexicon), ToyWordEncoder(5)])
    return pe.PairClassifier(embedder, ["no", "yes"], pooling="mean")


def ensemble(lexicon: pe.Lexicon) -> pe.VotingEnsemble:
    return pe.VotingEnsemble([pe.SequenceTagger(characters(lexicon), TAGS), tagger(lexicon)])


MODELS = {
    "plain": tagger,
    "unique": lambda lexicon: tagger(lexicon, pe.UniqueWords),
    "baked": lambda lexicon: tagger(lexicon, pe.bake),
    "mixed": mixed,
    "fused": fused,
    "ensemble": ensemble,
    "classifier": lambda lexicon: pe.SequenceClassifier(
        vector_source(lexicon), ["bad", "good"], pooling="mean"
    ),
}


def everything(model: nn.Module) -> dict[str, object]:
    """Every attribute of every part, tensors by content."""
    return {
        f"{name}.{key}": copy.deepcopy(value)
        if isinstance(value, torch.Tensor | dict | list)
        else value
        for name, part in model.named_modules()
        for key, value in (*vars(part).items(), *part.state_dict().items())
        if key not in ("_modules", "_parameters", "_buffers")
    }


@pytest.mark.parametrize("name", MODELS)
def test_predicting_changes_nothing(name: str) -> None:
    lexicon = toy_lexicon()
    model = MODELS[name](lexicon).train()
    list(model.children())[-1].eval()
    parts, parameters, words = list(model.modules()), dict(model.named_parameters()), list(lexicon)
    before, state = everything(model), torch.get_rng_state()
    model.predict(UNSEEN)
    next(model.predict_stream(UNSEEN))
    with pytest.raises(TypeError, match=r"\[1\] must be a list of words, got the string 'abc'$"):
        model.predict([["songs"], "abc"])
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
    assert all(parameter is parameters[key] for key, parameter in model.named_parameters())
    assert list(lexicon) == words
    assert torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), state)


def test_hooks_of_a_view_do_not_reach_the_model() -> None:
    model = fused(toy_lexicon()).train()
    hooks = [len(part._forward_hooks) for part in model.modules()]
    found = [model.predict(UNSEEN) for _ in range(3)]
    assert found == [model.eval().predict(UNSEEN)] * 3
    assert [len(part._forward_hooks) for part in fused(toy_lexicon()).modules()] == hooks


def test_pairs_over_a_mixed_embedder() -> None:
    model, texts = pairs(toy_lexicon()), [(["me"], ["songs", "y"]), (["cuando"], [])]
    model(**model.collate([Pair(*text, "yes") for text in texts])).backward()
    assert model.predict(texts) == [model.predict([text])[0] for text in texts]


def test_a_fallback_does_not_depend_on_other_members_or_words() -> None:
    lenient, strict = pe.Lexicon(WORDS, lowercase_fallback=True), toy_lexicon()
    one, other = tagger(lenient), tagger(strict)
    texts = [["Song", "ME"], ["song", "me", "Gusta"]]
    assert one.with_words(["Song", "ME"]).lexicon is lenient
    assert one.with_words(["new", "NEW"]).predict(texts) == one.predict(texts)
    both = pe.VotingEnsemble([one, other])
    assert both.predict(texts) == one.predict(texts)  # of two that differ, the first decides


def test_words_are_not_taken_apart() -> None:
    for model in (tagger(toy_lexicon()), mixed(toy_lexicon()), ensemble(toy_lexicon())):
        with pytest.raises(
            TypeError, match=r"^words must be a list of words, got the string 'zqx'$"
        ):
            model.with_words("zqx")


def test_a_model_in_training_predicts_as_in_evaluation_mode() -> None:
    model = tagger(toy_lexicon()).train()
    assert model.predict([*SENTENCES, *UNSEEN]) == model.eval().predict([*SENTENCES, *UNSEEN])


@pytest.mark.parametrize("name", ["plain", "fused", "ensemble"])
def test_eight_threads_predict_as_one(name: str) -> None:
    """One model in training mode, and two that share a lexicon, each with other unseen words."""
    lexicon = toy_lexicon()
    models: list[TextModel] = [MODELS[name](lexicon).train(), tagger(lexicon)]
    texts = [[[f"{i}word{k}", "me", f"x{k % 5}", "song"] for k in range(12)] for i in range(8)]
    expected = [[model.predict(part) for part in texts] for model in models]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(2):
            jobs = [
                [pool.submit(model.predict, part, batch_size=4) for part in texts]
                for model in models
            ]
            assert [[job.result() for job in row] for row in jobs] == expected


def test_predicting_while_training_in_another_thread() -> None:
    model = tagger(toy_lexicon())
    frozen = copy.deepcopy(model)
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(lambda: [model.predict(UNSEEN) for _ in range(20)])
        while not job.done():
            model.train()
            assert all(part.training for part in model.modules())
    assert job.result() == [frozen.eval().predict(UNSEEN)] * 20


def test_a_batch_moves_to_a_device() -> None:
    """Ids, pieces, tuples of both, and whole batches."""
    lexicon = toy_lexicon()
    both = pe.MetaEmbedding.concat([characters(lexicon), ToyWordEncoder(5)])
    tagger = pe.SequenceTagger(both, TAGS)
    batch = tagger.collate(toy_corpus(1)[:3])
    there = to_device(batch, "meta")
    assert there.keys() == batch.keys()
    ids, pieces = there["inputs"]
    assert type(pieces) is type(batch["inputs"][1])
    assert pieces.num_words == batch["inputs"][1].num_words
    tensors = [
        ids,
        *(part for part in pieces if isinstance(part, torch.Tensor)),
        there["tags"],
        there["mask"],
    ]
    assert all(tensor.is_meta for tensor in tensors)
    assert to_device(batch, "cpu")["tags"] is batch["tags"]
