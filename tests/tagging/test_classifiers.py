"""Classifiers of texts and of pairs, over tables and over encoders of transformers."""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from cases import SIZES, characters, vector_source
from checks import refused
from tiny_models import tiny_model
from torch import nn
from toys import SENTENCES, own_words, toy_lexicon

import polyembed as pe
from polyembed.data import TaggedSentence
from polyembed.encoders import CachedEmbedder
from polyembed.functional import cross_entropy
from polyembed.tagging import LabelCrossEntropy

sys.path.insert(0, str(Path(__file__).parents[1] / "text"))
from test_pairs import bert

LABELS = ["bad", "good", "so so"]
KNOWN = [["me", "gusta", "that"], ["canción", "y"], ["naïve"]]
TEXTS = [["me", "gusta", "la", "cancion"], [], ["songs", "\u200b", "zzz"]]


class Text(NamedTuple):
    words: tuple[str, ...]
    label: Any


def lively(model: nn.Module) -> nn.Module:
    """Initialise a model with large random weights, so that its output depends on its input."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.3)
    return model


def over_pieces(
    name: str = "bert", kind: type = pe.SequenceClassifier, fusion: Any = None, **options: Any
) -> Any:
    torch.manual_seed(0)
    embedder = pe.PretrainedWordEncoder(lively(tiny_model(name)), bert(), fusion=fusion)
    return kind(embedder, LABELS, **options).eval()


def spread(model: Any, texts: list) -> None:
    """Change an untrained classifier so that it predicts different labels for different texts."""
    nn.init.normal_(model.linear.weight, std=9)
    with torch.no_grad():
        model.linear.bias -= model.logits(*model.encode(texts)).mean(0)


def over_words(
    kind: type = pe.SequenceClassifier, labels: list = LABELS, pooling: str = "mean", **options: Any
) -> Any:
    """Build a classifier over a table, characters and vectors, to which "song" is unknown."""
    torch.manual_seed(0)
    lexicon = pe.Lexicon([word for word in toy_lexicon() if word != "song"])
    table = pe.SourceEmbedding.from_embedding(nn.Embedding(len(lexicon), 5), lexicon)
    parts = [table, characters(lexicon), vector_source(lexicon, 3)]
    embedder = pe.MetaEmbedding.concat(parts)
    return kind(embedder, labels, pooling=pooling, **options).eval()


# One text


@pytest.mark.parametrize(
    ("name", "pooling"), [("bert", "cls"), ("distilbert", "mean"), ("xlm", "max")]
)
def test_pools_the_pieces_of_the_fused_layer(name, pooling):
    ours = over_pieces(name, pooling=pooling, fusion=pe.ScalarMix(4))
    tokenizer, model = bert(), lively(tiny_model(name))
    inputs, mask = ours.encode(TEXTS)
    found = ours.logits(inputs, mask)
    assert found.shape == (3, 3)
    for row, words in enumerate(TEXTS):
        spelled = [tokenizer.encode(word, add_special_tokens=False) or [1] for word in words]
        ids = torch.tensor([[2, *(piece for pieces in spelled for piece in pieces), 3]])
        states = model(
            input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True
        ).hidden_states
        fused = torch.stack(states).mean(0)[0]
        pooled = {"cls": fused[0], "mean": fused.mean(0), "max": fused.amax(0)}[pooling]
        torch.testing.assert_close(found[row], ours.linear(pooled), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("pooling", "encoder"), [("mean", None), ("max", pe.TransformerSequenceEncoder)]
)
def test_pools_words(pooling, encoder):
    ours = over_words(pooling=pooling, encoder=encoder and encoder(13, **SIZES), hidden_size=7)
    found = ours.logits(*ours.encode([*SENTENCES, []]))
    nothing = torch.zeros(1, (ours.encoder or ours.embedder).embedding_dim)
    for row, words in enumerate([*SENTENCES, []]):
        x = ours.embedder(ours.lexicon.encode([words])[0])
        x = (ours.encoder(x) if encoder else x)[0] if words else nothing
        pooled = x.mean(0) if pooling == "mean" else x.amax(0)
        expected = ours.linear(ours.hidden(pooled).tanh())
        torch.testing.assert_close(found[row], expected, atol=1e-5, rtol=1e-4)


def test_loss_and_probabilities_follow_the_logits():
    ours = over_words(criterion=LabelCrossEntropy([1.0, 2.0, 3.0]))
    batch = ours.collate([Text(tuple(x), label) for x, label in zip(KNOWN, LABELS, strict=True)])
    assert batch["labels"].tolist() == [0, 1, 2]
    inputs = batch["inputs"], batch["mask"]
    logits = ours.logits(*inputs)
    expected = cross_entropy(logits, batch["labels"], weights=torch.tensor([1.0, 2.0, 3.0]))
    assert torch.equal(ours(**batch), expected)
    torch.testing.assert_close(ours.probabilities(*inputs), logits.softmax(-1))
    assert ours.predict(KNOWN) == [LABELS[i] for i in logits.argmax(-1).tolist()]
    assert ours.encode_labels([None, LABELS[1]]).tolist() == [-100, 1]


# Two texts

PAIRS = [
    (["me", "gusta", "la"], ["songs"]),
    ([], ["a"]),
    (["b"], ["c", "cancion", "me"]),
    (["me"], []),
    ([], []),
]


@pytest.mark.parametrize(
    ("name", "pooling"), [("bert", "cls"), ("distilbert", "mean"), ("xlm-roberta", "mean")]
)
def test_pairs_are_read_as_transformers_reads_them(name, pooling):
    ours, tokenizer = over_pieces(name, kind=pe.PairClassifier, pooling=pooling), bert()
    model = lively(tiny_model(name))
    nn.init.normal_(ours.linear.weight, std=3)
    typed = name != "distilbert"
    inputs, mask = ours.encode(PAIRS)
    assert (mask, inputs.token_types is None) == (None, not typed)
    found = ours.logits(inputs, mask)
    for row, (first, second) in enumerate(PAIRS):
        encoded = tokenizer([first], [second], is_split_into_words=True, return_tensors="pt")
        if not typed:
            del encoded["token_type_ids"]
        states = model(**encoded).last_hidden_state[0]
        pooled = states[0] if pooling == "cls" else states.mean(0)
        torch.testing.assert_close(found[row], ours.linear(pooled), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("stored", [False, True])
def test_pairs_of_words_are_compared(stored):
    kinds = pe.PairClassifier, pe.SequenceClassifier
    embedder = CachedEmbedder(over_pieces().embedder) if stored else over_words().embedder
    ours, single = (kind(embedder, LABELS, pooling="max").eval() for kind in kinds)
    inputs, mask = ours.encode(PAIRS)
    assert mask.shape == (5, 2, 3)
    found = ours.logits(inputs, mask)
    for row, pair in enumerate(PAIRS):
        u, v = (single.features(*single.encode([words]))[0] for words in pair)
        torch.testing.assert_close(found[row], ours.linear(torch.cat([u, v, (u - v).abs(), u * v])))


@pytest.mark.parametrize("build", [over_words, over_pieces])
@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (pe.SequenceClassifier, [*SENTENCES, [], ["songs", "cuando"], ["मुझे"], ["cancion", "a"]]),
        (pe.PairClassifier, PAIRS),
    ],
)
def test_predicts_in_the_order_given(build, kind, texts):
    ours = build(kind=kind, pooling="mean")
    spread(ours, texts)
    alone = [ours.predict([text])[0] for text in texts]
    assert len(set(alone)) > 1
    assert ours.predict(iter(texts), batch_size=2) == ours.predict(texts) == alone
    assert ours.predict([]) == []


# Training


@pytest.mark.parametrize(("build", "metric"), [(over_words, None), (over_pieces, "macro_f1")])
def test_learns(build, metric):
    model = build(dropout=0.0, pooling="mean")
    rows = [("me gusta", "good"), ("gusta y y", "bad"), ("naïve", "so so"), ("me me", "good")]
    texts = [Text(tuple(text.split()), label) for text, label in rows]
    options = pe.FitOptions(
        num_train_epochs=30,
        batch_size=8,
        metric=metric,
        optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=0.02),
        patience=None,
    )
    result = pe.fit(model, texts * 4, texts, options)
    assert result.best.score == 1.0
    assert result.history[-1].loss < result.history[0].loss / 2
    assert model.predict([text.words for text in texts]) == [text.label for text in texts]


def test_tweets_with_a_sentiment_are_read_as_they_are():
    rows = [(("me",), "bad"), (("y",), "good")]
    tweets = [TaggedSentence(words, ("Hin",), label=label) for words, label in rows]
    assert pe.fit(over_words(), tweets, tweets, pe.FitOptions(num_train_epochs=1)).best.number == 1


# Scores that are not numbers


def test_scores_that_are_not_numbers_have_no_label():
    model = over_words()
    with torch.no_grad():
        model.linear.bias[0] = torch.nan
    message = r"^texts\[1\] must have a finite score for a label, and no NaN, got \[nan, "
    for call in (model.predict, model.predict_probabilities):
        refused(ValueError, message, call, [["me", "y"], ["me"]])


@own_words
@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ValueError, "labels must be different names, .*", lambda: over_words(labels=["a", "a"])),
        (
            ValueError,
            "pooling must be 'mean' or 'max' over the vectors of words, got 'cls'$",
            lambda: over_words(pooling="cls"),
        ),
        (
            ValueError,
            r"labels\[1\] must be one of .* 'great'",
            lambda: over_words().encode_labels(["bad", "great"]),
        ),
        (
            ValueError,
            r"labels\[0\] must be one of .* got \['bad'\]",
            lambda: over_words().encode_labels([["bad"]]),
        ),
        (
            ValueError,
            r"texts\[0\] must be two lists of words, got \(",
            lambda: over_words(pe.PairClassifier).encode([(["me"], ["a"], ["b"])]),
        ),
        (
            ValueError,
            r"inputs must have the axes \(batch, 2, word\), got \(2, 3, 4\)$",
            lambda: over_words(pe.PairClassifier).logits(torch.ones(2, 3, 4, dtype=torch.int64)),
        ),
        (
            TypeError,
            r"texts\[0\] must be a list of words, got the string",
            lambda: over_words().predict(["me gusta"]),
        ),
    ],
)
def test_wrong_arguments(error, message, call):
    refused(error, f"^{message}", call)
