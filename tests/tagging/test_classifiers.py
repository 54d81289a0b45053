"""Classifiers of texts and pairs: over tables, over encoders of transformers, trained, saved, and given nonsense."""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from cases import SIZES, characters, vector_source
from tiny_models import tiny_model
from torch import nn
from toys import SENTENCES, ToyWordEncoder, own_words, toy_lexicon

import polyembed as pe
from polyembed import metrics
from polyembed.data import TaggedSentence
from polyembed.functional import cross_entropy
from polyembed.tagging import FocalLoss, LabelCrossEntropy
from polyembed.tagging.text_model import to_device
from polyembed.text import PairedPieces

sys.path.insert(0, str(Path(__file__).parents[1] / "text"))
from test_pairs import bert

LABELS = ["bad", "good", "so so"]
KNOWN = [["me", "gusta", "that"], ["canción", "y"], ["naïve"]]
TEXTS = [["me", "gusta", "la", "cancion"], [], ["songs", "\u200b", "zzz"]]


class Text(NamedTuple):
    words: tuple[str, ...]
    label: Any


class Pair(NamedTuple):
    first: tuple[str, ...]
    second: tuple[str, ...]
    label: Any


def lively(model: nn.Module) -> nn.Module:
    """Give a random model weights that make its output depend on its input."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.3)
    return model


def over_pieces(name: str = "bert", kind: type = pe.SequenceClassifier, **options: Any) -> Any:
    torch.manual_seed(0)
    encoder = {key: options.pop(key) for key in ("fusion", "freeze", "overflow") if key in options}
    sizes = {"max_position_embeddings": 16} if options.pop("short", False) else {}
    embedder = pe.PretrainedWordEncoder(lively(tiny_model(name, **sizes)), bert(), **encoder)
    return kind(embedder, options.pop("labels", LABELS), **options).eval()


def spread(model: Any, texts: list) -> None:
    """Make a classifier without training say different labels of different texts."""
    nn.init.normal_(model.linear.weight, std=9)
    with torch.no_grad():
        model.linear.bias -= model.logits(*model.encode(texts)).mean(0)


def over_words(kind: type = pe.SequenceClassifier, **options: Any) -> Any:
    """Words in a table and by their letters; "song" is unknown."""
    torch.manual_seed(0)
    lexicon = pe.Lexicon([word for word in toy_lexicon() if word != "song"])
    table = pe.SourceEmbedding.from_embedding(nn.Embedding(len(lexicon), 5), lexicon)
    parts = [table, characters(lexicon), vector_source(lexicon, 3)]
    embedder = pe.MetaEmbedding.concat(parts)
    options = {"pooling": "mean", **options}
    return kind(embedder, options.pop("labels", LABELS), **options).eval()


# One text


@pytest.mark.parametrize(
    ("name", "pooling"), [("bert", "cls"), ("distilbert", "mean"), ("xlm", "max")]
)
def test_pools_the_pieces_of_the_fused_layer(name: str, pooling: str) -> None:
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
def test_pools_words(pooling: str, encoder) -> None:
    ours = over_words(pooling=pooling, encoder=encoder and encoder(13, **SIZES), hidden_size=7)
    inputs, mask = ours.encode([*SENTENCES, []])
    found = ours.logits(inputs, mask)
    for row, words in enumerate([*SENTENCES, []]):
        x = ours.embedder(ours.lexicon.encode([words])[0])
        if encoder:
            x = ours.encoder(x)
        pooled = (
            (x[0].mean(0) if pooling == "mean" else x[0].amax(0))
            if words
            else torch.zeros(x.shape[-1])
        )
        torch.testing.assert_close(
            found[row], ours.linear(ours.hidden(pooled).tanh()), atol=1e-5, rtol=1e-4
        )


def test_pools_the_words_of_other_encoders() -> None:
    torch.manual_seed(0)
    ours = pe.SequenceClassifier(ToyWordEncoder(5), LABELS, pooling="mean").eval()
    inputs, mask = ours.encode(SENTENCES)
    expected = torch.stack(
        [x[: len(words)].mean(0) for x, words in zip(ours.embedder(inputs), SENTENCES, strict=True)]
    )
    torch.testing.assert_close(ours.logits(inputs, mask), ours.linear(expected))
    above = over_pieces(encoder=pe.TransformerSequenceEncoder(8, **SIZES), pooling="max")
    inputs, mask = above.encode(TEXTS)
    words = above.encoder(above.embedder(inputs), mask)
    torch.testing.assert_close(above.logits(inputs, mask)[0], above.linear(words[0].amax(0)))


def test_loss_decode_and_probabilities_follow_the_logits() -> None:
    ours = over_words(criterion=LabelCrossEntropy([1.0, 2.0, 3.0]))
    batch = ours.collate(
        [Text(tuple(words), label) for words, label in zip(KNOWN, LABELS, strict=True)]
    )
    assert batch["labels"].tolist() == [0, 1, 2]
    logits = ours.logits(batch["inputs"], batch["mask"])
    expected = cross_entropy(logits, batch["labels"], weights=torch.tensor([1.0, 2.0, 3.0]))
    assert torch.equal(ours(**batch), expected)
    probabilities = ours.probabilities(batch["inputs"], batch["mask"])
    torch.testing.assert_close(probabilities, logits.softmax(-1))
    assert torch.equal(ours.decode(batch["inputs"], batch["mask"]), logits.argmax(-1))
    assert ours.predict(KNOWN) == [LABELS[i] for i in logits.argmax(-1).tolist()]


def test_dropout_is_before_each_linear_map_in_training() -> None:
    ours = over_words(dropout=0.5, hidden_size=400)
    inputs, mask = ours.encode(KNOWN)
    dropped = []
    for layer in (ours.hidden, ours.linear):
        layer.register_forward_pre_hook(
            lambda _, x: dropped.append(x[0].eq(0).double().mean().item())
        )
    ours.logits(inputs, mask)
    ours.train().logits(inputs, mask)
    assert dropped[:2] == [0.0, 0.0]
    assert 0.1 < dropped[2] < 0.9
    assert 0.4 < dropped[3] < 0.6


@pytest.mark.parametrize("build", [over_words, over_pieces])
def test_predicts_in_the_order_given(build) -> None:
    texts = [*SENTENCES, [], ["songs", "cuando"], ["मुझे"], ["cancion", "a"]] * 3
    ours = build(pooling="mean")
    spread(ours, texts)
    alone = [ours.predict([text])[0] for text in texts]
    assert len(set(alone)) > 1
    for options in ({}, {"batch_size": 2}):
        assert ours.predict(iter(texts), **options) == alone
    assert ours.predict([]) == []


def test_long_texts_are_read_in_windows() -> None:
    words = ["me", "gusta", "la", "cancion", "songs"] * 9
    short = over_pieces(short=True, pooling="mean")
    assert short.predict([words, words[:2]])[1] == short.predict([words[:2]])[0]
    inputs, mask = short.encode([words])
    assert inputs.piece_ids.shape[1] > 16
    assert short.logits(inputs, mask).isfinite().all()


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
def test_pairs_are_read_as_transformers_reads_them(name: str, pooling: str) -> None:
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


def test_a_single_token_type_is_none() -> None:
    encoder = pe.PretrainedWordEncoder(tiny_model("xlm-roberta", type_vocab_size=1), bert())
    ours = pe.PairClassifier(encoder, LABELS)
    assert ours.encode(PAIRS)[0].token_types is None
    assert len(ours.predict(PAIRS)) == 5


def test_the_longer_of_a_pair_is_cut_first() -> None:
    first, second = ["me", "la"], ["me"] * 30
    ours = over_pieces(kind=pe.PairClassifier, short=True)
    row = ours.encode([(first, second)])[0].pieces.piece_ids[0].tolist()
    assert row == [2, 5, 8, 3, *[5] * 11, 3]
    assert ours.predict([(first, second)]) == ours.predict([(first, ["me"] * 11)])
    strict = over_pieces(kind=pe.PairClassifier, short=True, overflow="error")
    with pytest.raises(ValueError, match=r"^pairs\[0\] must have at most 16 pieces .*, got 35$"):
        strict.predict([(first, second)])
    whole = over_pieces(kind=pe.PairClassifier).encode([(first, second)])[0]
    with pytest.raises(ValueError, match=r"^piece_ids must have at most 16 pieces, got 35$"):
        ours.logits(whole)


def test_pairs_of_words_are_compared() -> None:
    ours, single = over_words(pe.PairClassifier, pooling="max"), over_words(pooling="max")
    single.embedder.load_state_dict(ours.embedder.state_dict())
    inputs, mask = ours.encode(PAIRS)
    assert inputs.shape == mask.shape == (5, 2, 3)
    found = ours.logits(inputs, mask)
    for row, pair in enumerate(PAIRS):
        u, v = (single.features(*single.encode([words]))[0] for words in pair)
        torch.testing.assert_close(found[row], ours.linear(torch.cat([u, v, (u - v).abs(), u * v])))


def test_pairs_over_another_word_encoder() -> None:
    torch.manual_seed(0)
    ours = pe.PairClassifier(ToyWordEncoder(5), LABELS, pooling="mean").eval()
    inputs, mask = ours.encode(PAIRS[:1])
    assert inputs.piece_ids.shape[:2] == (1, 2)
    u, v = (ours.embedder(ours.embedder.encode([words])[0])[0].mean(0) for words in PAIRS[0])
    torch.testing.assert_close(
        ours.logits(inputs, mask)[0], ours.linear(torch.cat([u, v, (u - v).abs(), u * v]))
    )
    above = over_pieces(
        kind=pe.PairClassifier, encoder=pe.TransformerSequenceEncoder(8, **SIZES), pooling="max"
    )
    assert above.linear.in_features == 4 * 4
    assert len(above.predict(PAIRS)) == 5


@pytest.mark.parametrize("build", [over_words, over_pieces])
def test_pairs_are_predicted_in_any_company(build) -> None:
    ours, pairs = build(kind=pe.PairClassifier, pooling="mean"), PAIRS * 3
    spread(ours, pairs)
    alone = [ours.predict([pair])[0] for pair in pairs]
    assert ours.predict(pairs, batch_size=4) == alone
    assert ours.predict([list(pair) for pair in pairs]) == alone
    assert len(set(alone)) > 1
    assert ours.predict([]) == []


def test_inputs_of_pairs_move() -> None:
    for build in (over_words, over_pieces):
        inputs, mask = build(kind=pe.PairClassifier).encode(PAIRS)
        moved = to_device(inputs, torch.device("meta"))
        assert type(moved) is type(inputs)
        parts = (
            [*moved.pieces[:3], moved.token_types] if isinstance(moved, PairedPieces) else [moved]
        )
        assert all(part.is_meta for part in parts)
        assert to_device(mask, torch.device("meta")) is None or mask is not None


# Training

TRAIN = [
    Text(("me", "gusta", "that", "song"), "good"),
    Text(("canción", "y", "song"), "bad"),
    Text(("naïve",), "so so"),
    Text(("me", "gusta"), "good"),
    Text(("y", "canción"), "bad"),
    Text((), "bad"),
] * 2
SPELLED = [
    Text(("me", "gusta", "song"), "good"),
    Text(("cancion", "a"), "bad"),
    Text(("b",), "so so"),
    Text(("me", "gusta"), "good"),
    Text(("c", "cancion"), "bad"),
]
DEV = [*TRAIN[:5], Text(("songs", "song"), "bad"), Text((), "so so")]


def adam(model: nn.Module, lr: float = 0.02) -> torch.optim.Adam:
    return torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=lr)


ONE_EPOCH = pe.FitOptions(num_train_epochs=1)


@pytest.mark.parametrize(("build", "metric"), [(over_words, None), (over_pieces, "macro_f1")])
def test_learns(build, metric) -> None:
    model = build(dropout=0.0, pooling="mean")
    texts = TRAIN[:5] if build is over_words else SPELLED
    options = pe.FitOptions(
        num_train_epochs=30, batch_size=10, metric=metric, optimizer=adam, patience=None
    )
    result = pe.fit(model, texts * 4, texts, options)
    assert result.best.score == 1.0
    assert result.history[-1].loss < result.history[0].loss / 2
    assert model.predict([text.words for text in texts]) == [text.label for text in texts]


def test_metrics_by_name() -> None:
    found = {}
    for name, metric in (("accuracy", metrics.accuracy), ("macro_f1", metrics.macro_f1)):
        model = over_words()
        found[name] = pe.fit(
            model, TRAIN, DEV, pe.FitOptions(num_train_epochs=1, metric=name)
        ).best.score
        predicted = [[label] for label in model.predict([text.words for text in DEV])]
        assert found[name] == metric([[text.label] for text in DEV], predicted)
    assert found["accuracy"] != found["macro_f1"]


def test_texts_without_words_are_left_out_of_training(monkeypatch) -> None:
    model, seen = over_words(), []
    collate = model.collate
    monkeypatch.setattr(model, "collate", lambda items: (seen.extend(items), collate(items))[1])
    pe.fit(model, TRAIN, DEV, ONE_EPOCH)
    assert sorted(seen) == sorted(text for text in TRAIN if text.words)


def test_tweets_with_a_sentiment_are_read_as_they_are() -> None:
    tweets = [
        TaggedSentence(("me",), ("Hin",), label="bad"),
        TaggedSentence(("y",), ("Hin",), label="good"),
    ]
    assert pe.fit(over_words(), tweets, tweets, ONE_EPOCH).best.number == 1
    with pytest.raises(ValueError, match=r"^dev must hold a label that is known, got none$"):
        pe.fit(over_words(), tweets, [TaggedSentence(("me",), ("Hin",))])


# Nonsense


@pytest.mark.parametrize("build", [over_words, over_pieces])
@pytest.mark.parametrize("kind", [pe.SequenceClassifier, pe.PairClassifier])
def test_nothing_at_all(build, kind) -> None:
    model = build(kind=kind)
    inputs, mask = model.encode([])
    assert model.logits(inputs, mask).shape == (0, 3)
    assert model(inputs, labels=model.encode_labels([]), mask=mask).item() == 0.0


def test_scores_that_are_not_numbers_have_no_label() -> None:
    model = over_words()
    with torch.no_grad():
        model.linear.bias[0] = torch.nan
    message = r"^texts\[1\] must have a finite score for a label, and no NaN, got \[nan, "
    with pytest.raises(ValueError, match=message):
        model.predict([["me", "y"], ["me"]])
    assert model.embedder.num_embeddings == len(model.lexicon)


def fit(items: list, dev: list | None = None, **options: Any) -> None:
    model = over_words(pe.PairClassifier if hasattr(items[0], "first") else pe.SequenceClassifier)
    model.register_forward_hook(lambda *_: pytest.fail("a step was made"))
    pe.fit(model, items, items if dev is None else dev, pe.FitOptions(**options))


def pairs_over(build) -> pe.PairClassifier:
    return build(kind=pe.PairClassifier)


IDS = torch.tensor([[2]])


@own_words
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: over_words(labels=[]), r"labels must be different names, at least one, got \[\]$"),
        (
            lambda: over_words(labels=["a", "a"]),
            r"labels must be different names, at least one, got \['a', 'a'\]$",
        ),
        (
            lambda: over_words(pooling="cls"),
            r"pooling must be 'mean' or 'max' over the vectors of words, got 'cls'$",
        ),
        (
            lambda: over_pieces(encoder=pe.TransformerSequenceEncoder(8, **SIZES)),
            r"pooling must be .*, got 'cls'$",
        ),
        (
            lambda: over_words(pooling="sum"),
            r"pooling must be one of 'cls', 'mean', 'max', got 'sum'$",
        ),
        (lambda: over_words(hidden_size=0), r"hidden_size must be a positive integer, got 0$"),
        (lambda: over_words(dropout=1.5), r"dropout must be in \[0, 1\), got 1.5$"),
        (
            lambda: over_words(criterion=FocalLoss(weights=[1.0])),
            r"criterion must have weights for 3",
        ),
        (
            lambda: over_words(encoder=pe.LSTMSequenceEncoder(4, hidden_size=3)),
            r"encoder must have the",
        ),
        (
            lambda: over_words().encode_labels(["bad", "great"]),
            r"labels\[1\] must be one of .* 'great'",
        ),
        (
            lambda: over_words().predict([["me"]], batch_size=0),
            r"batch_size must be a positive integer",
        ),
        (
            lambda: pairs_over(over_words).encode([(["me"], ["a"], ["b"])]),
            r"texts\[0\] must be two lists of words, got \(",
        ),
        (
            lambda: over_words()(IDS, labels=torch.tensor([3])),
            r"labels must be in \[0, 3\) or be -100, got",
        ),
        (lambda: over_words()(IDS, labels=IDS), r"labels must have shape \(1,\), got \(1, 1\)$"),
        (
            lambda: pairs_over(over_words).logits(IDS),
            r"inputs must have the axes \(batch, 2, .*, got shape \(1, 1\)$",
        ),
        (
            lambda: pairs_over(over_words).logits(IDS.expand(2, 3, 1)),
            r"inputs must have .*, got shape \(2, 3, 1\)$",
        ),
        (
            lambda: fit([Text(("me",), "great")]),
            r"labels\[0\] must be one of bad, .*, got 'great'$",
        ),
        (
            lambda: fit([Text((), "bad")]),
            r"train must hold at least one sentence with a word, got none$",
        ),
        (
            lambda: fit([Pair((), (), "bad")]),
            r"train must hold at least one sentence with a word, got none$",
        ),
        (
            lambda: fit([Text(("me",), "bad")], []),
            r"dev must hold at least one sentence, got none$",
        ),
        (
            lambda: fit([Text(("me",), "bad")], metric="f1"),
            r"metric must be one for these labels, .* labels must be O, B-<type> or I",
        ),
    ],
)
def test_wrong_values(call, text) -> None:
    with pytest.raises(ValueError, match=f"^{text}"):
        call()


@own_words
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: over_words(labels="ab"), r"labels must be a list of words, got the str"),
        (lambda: over_words(labels=[0, 1]), r"labels\[0\] must be a string, got int"),
        (
            lambda: pe.SequenceClassifier(nn.Embedding(9, 2), LABELS, pooling="mean"),
            r"embedder must be a word embedder",
        ),
        (
            lambda: pe.SequenceClassifier(nn.Linear(2, 2), LABELS),
            r"embedder must be a word embedder ",
        ),
        (
            lambda: over_words().predict(["me gusta"]),
            r"texts\[0\] must be a list of words, got the string",
        ),
        (
            lambda: over_pieces().predict([["me"], ["la", 3]]),
            r"texts\[1\]\[1\] must be a string, got int$",
        ),
        (
            lambda: pairs_over(over_words).predict([PAIRS[0], ["me", "la"]]),
            r"texts\[1\]\[0\] must be a list of words, got the string 'me'$",
        ),
        (lambda: over_words()(IDS, labels=torch.tensor([0.0])), r"labels must be int64 or"),
        (
            lambda: pairs_over(over_pieces).logits(over_pieces().encode(TEXTS)[0]),
            r"inputs must be .*, got Pieces$",
        ),
        (
            lambda: pairs_over(over_words).logits(pairs_over(over_pieces).encode(PAIRS)[0]),
            r"inputs must be ids or Pieces of both texts, as encode makes them, got PairedPieces$",
        ),
        (
            lambda: pe.PairClassifier(pe.PretrainedWordEncoder(tiny_model("bert")), LABELS).predict(
                PAIRS
            ),
            r"tokenizer must be one of transformers, got NoneType$",
        ),
    ],
)
def test_wrong_kinds(call, text) -> None:
    with pytest.raises(TypeError, match=f"^{text}"):
        call()
