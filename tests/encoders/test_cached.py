"""Features of a frozen encoder on disk, and the embedder that reads them."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from checks import refused
from tiny_models import tiny_model, word_piece_tokenizer
from toys import TAGS, toy_corpus, toy_lexicon, toy_table

import polyembed as pe
from polyembed.encoders import (
    CachedEmbedder,
    FeatureStore,
    LayerFusion,
    cache_features,
    pool_words,
)
from polyembed.training import FitOptions, fit

SENTENCES = [
    ["me", "gusta"],
    ["that", "song", "me"],
    [],
    ["me"],
    ["that"],
    ["me", "gusta"],
    ["🙂", "", "\ud800"],
]


def build_encoder(seed: int = 0, **options: object) -> pe.PretrainedWordEncoder:
    model = tiny_model("bert")
    model.embeddings.word_embeddings.weight.data[seed] += 1
    return pe.PretrainedWordEncoder(model, word_piece_tokenizer(), **options).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_holds_what_the_encoder_computes(tmp_path: Path, dtype: torch.dtype, pooling: str) -> None:
    encoder = build_encoder(pooling=pooling).train()
    store = cache_features(encoder, iter(SENTENCES), tmp_path / "s", dtype=dtype, batch_size=2)
    assert encoder.training  # unchanged
    encoder.eval()
    assert len(store) == 6  # one is there twice
    for words in SENTENCES:
        found = store.get(words)
        assert found.dtype == dtype
        expected = torch.zeros(0, 1, 8)
        if words:
            expected = encoder(encoder.encode([words])[0])[0, :, None]
        eps = torch.finfo(dtype).eps
        torch.testing.assert_close(found.float(), expected, atol=4 * eps, rtol=eps)


def test_holds_layers_by_their_numbers(tmp_path: Path) -> None:
    encoder = build_encoder()
    options = {"layers": [0, -1], "dtype": torch.float32}
    store = cache_features(encoder, SENTENCES, tmp_path / "store", **options)
    assert store.layers == [0, 3]
    pieces, _ = encoder.encode([["that", "song", "me"]])
    states = encoder.hidden_states(pieces, all_layers=True)
    found = store.get(["that", "song", "me"])
    for i, layer in enumerate(store.layers):
        pooled = pool_words(states[layer], pieces.word_index, 3)
        torch.testing.assert_close(found[None, :, i], pooled, atol=1e-6, rtol=1e-6)
    message = r"layers must be among the 4 hidden states \(0 to 3\), got \[4\]"
    refused(ValueError, message, cache_features, encoder, [], tmp_path / "a", layers=[4])


def test_words_end_where_they_ended(tmp_path: Path) -> None:
    store = cache_features(build_encoder(), [["me gusta"], ["a", "b"]], tmp_path / "store")
    assert store.get(["me", "gusta"]) is None
    assert ["me gusta"] in store
    assert ["ab"] not in store
    refused(TypeError, "words must be a list of words, got the string 'me'", store.get, "me")


def test_a_folder_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    encoder = build_encoder()
    for value in encoder.model.embeddings.LayerNorm.parameters():
        value.data.mul_(1e6)
    options = {"layers": [0]}
    message = "have finite vectors in torch.float16 .*has the widest range"
    refused(ValueError, message, cache_features, encoder, [["me"]], tmp_path / "a", **options)
    assert not list(tmp_path.iterdir())
    cache_features(encoder, [["me"]], tmp_path / "a", dtype=torch.float32, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    with pytest.raises(FileExistsError, match="exists: CachedEmbedder"):
        cache_features(encoder, [["me"]], tmp_path / "a")


def test_damaged_stores_are_refused(tmp_path: Path) -> None:
    refused(FileNotFoundError, "cache_features writes such a folder", FeatureStore, tmp_path)
    folder = cache_features(build_encoder(), SENTENCES, tmp_path / "store").folder
    index = json.loads((folder / "index.json").read_text())
    (folder / "index.json").write_text(json.dumps({**index, "sentences": [["me"]]}))
    refused(
        ValueError,
        r"intact features .* features.npy must have shape \(1, 1, 8\), got",
        FeatureStore,
        folder,
    )
    (folder / "index.json").write_text(json.dumps({**index, "format_version": 2}))
    refused(ValueError, "have version 3, got 2", FeatureStore, folder)


def stored(
    folder: Path, sentences=SENTENCES, *, layers=None, dtype=torch.float32, **options
) -> CachedEmbedder:
    encoder = build_encoder(pooling="last")
    store = cache_features(encoder, sentences, folder / "store", layers=layers, dtype=dtype)
    return CachedEmbedder(encoder, store, **options)


@pytest.mark.parametrize("held", [len(SENTENCES), 2, 0])
def test_reads_what_the_encoder_computes(tmp_path: Path, held: int) -> None:
    embedder = stored(tmp_path, SENTENCES[:held], normalize=None)
    inputs, mask = embedder.encode(SENTENCES)
    pieces, expected_mask = embedder.encoder.encode(SENTENCES)
    assert torch.equal(mask, expected_mask)
    torch.testing.assert_close(embedder(inputs), embedder.encoder(pieces), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("layers", "fusion", "same"),
    [
        (None, None, pe.LastLayer()),
        ([3, 2], pe.LayerAverage([2, -1]), pe.LayerAverage([2, 3])),
        (range(4), pe.ScalarMix(4), pe.ScalarMix(4)),
        ([1, 3], pe.DLFA(8, 1, branches="local"), pe.DLFA(8, 1, branches="local")),
    ],
)
def test_fusions_over_stored_layers(tmp_path: Path, layers, fusion, same) -> None:
    embedder = stored(tmp_path, layers=layers, fusion=fusion, normalize=None).eval()
    if fusion is not None:
        same.load_state_dict(fusion.state_dict())
    whole = pe.PretrainedWordEncoder(
        embedder.encoder.model, embedder.encoder.tokenizer, fusion=same, pooling="last"
    )
    expected = whole.eval()(whole.encode(SENTENCES)[0])
    found = embedder(embedder.encode(SENTENCES)[0])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_standardises(tmp_path: Path) -> None:
    sentences = [words for words in dict.fromkeys(map(tuple, SENTENCES)) if words]
    embedder = stored(tmp_path, sentences)
    inputs, mask = embedder.encode(sentences)
    rows = embedder(inputs)[mask]
    torch.testing.assert_close(rows.mean(0), torch.zeros(8), atol=1e-5, rtol=0)
    torch.testing.assert_close(rows.std(0, correction=0), torch.ones(8))
    assert (embedder(inputs)[~mask] == 0).all()


def test_divides_each_vector_by_its_root_mean_square(tmp_path: Path) -> None:
    embedder = stored(tmp_path, [*SENTENCES], normalize="rms")
    inputs, mask = embedder.encode(SENTENCES)
    for found, row in zip(
        embedder(inputs)[mask], inputs.features[mask][:, 0].tolist(), strict=True
    ):
        root = (sum(value * value for value in row) / len(row)) ** 0.5
        torch.testing.assert_close(found, torch.tensor(row) / root)
    assert (embedder(inputs)[~mask] == 0).all()
    assert (embedder.mean == 0).all()
    assert CachedEmbedder(**embedder.get_config()).normalize == "rms"


def test_refuses_another_normalization(tmp_path: Path) -> None:
    refused(
        ValueError,
        "normalize must be 'standardize', 'rms' or None, got l2",
        stored,
        tmp_path,
        normalize="l2",
    )


def test_words_without_pieces_keep_zeros_and_do_not_count(tmp_path: Path) -> None:
    sentences = [words for words in dict.fromkeys(map(tuple, SENTENCES)) if words]
    encoder = build_encoder()
    encoder.max_length, encoder.overflow = 4, "truncate"
    store = cache_features(
        encoder, [*sentences, ("me",) * 9], tmp_path / "store", dtype=torch.float32
    )
    embedder = CachedEmbedder(encoder, store)
    inputs, _ = embedder.encode([("me",) * 9])
    cut = (inputs.features == 0).all(-1).all(-1)
    assert 0 < cut.sum() < 9
    assert (embedder(inputs)[cut] == 0).all()
    rows = torch.cat([store.get(words)[:, 0] for words in [*sentences, ("me",) * 9]])
    torch.testing.assert_close(embedder.mean[0], rows[rows.any(1)].mean(0))


@pytest.mark.parametrize(
    "fusion",
    [pe.LastLayer(), pe.LayerAverage([0, -2]), pe.ScalarMix(4), pe.DLFA(8, 1, branches="local")],
)
def test_standardises_the_layers_that_are_fused(tmp_path: Path, fusion: LayerFusion) -> None:
    embedder = stored(tmp_path, layers=range(4), dtype=torch.float16, fusion=fusion).eval()
    inputs, mask = embedder.encode(SENTENCES)
    every = (inputs.features.float() - embedder.mean) / embedder.deviation
    torch.testing.assert_close(embedder(inputs), fusion(every.unbind(2), mask))


def build_tagger(folder: Path) -> tuple[pe.SequenceTagger, list]:
    data = toy_corpus()
    embedder = stored(
        folder,
        [item.words for item in data],
        layers=range(4),
        dtype=torch.float16,
        fusion=pe.ScalarMix(4),
    )
    meta = pe.MetaEmbedding.concat([toy_table(4), embedder])
    return pe.SequenceTagger(
        meta, TAGS, encoder=pe.LSTMSequenceEncoder(meta.embedding_dim, hidden_size=8)
    ), data


def test_trains_beside_other_embedders_and_tags_any_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    tagger, data = build_tagger(tmp_path / "store")
    before = {name: value.clone() for name, value in tagger.state_dict().items()}
    forward = type(tagger.embedder.embedders[1].encoder).forward
    monkeypatch.setattr(
        pe.PretrainedWordEncoder, "forward", None
    )  # training never runs the encoder
    monkeypatch.setattr(pe.PretrainedWordEncoder, "hidden_states", None)
    fit(tagger, data, data, FitOptions(num_train_epochs=2, metric="accuracy"), progress=False)
    monkeypatch.undo()
    assert pe.PretrainedWordEncoder.forward is forward
    changed = {
        name for name, value in tagger.state_dict().items() if not torch.equal(value, before[name])
    }
    assert "embedder.embedders.1.fusion.scores" in changed
    assert not any(".encoder.model." in name for name in changed)
    assert not any(
        value.requires_grad for value in tagger.embedder.embedders[1].encoder.parameters()
    )
    texts = [["me", "gusta"], ["nunca", "visto"], []]
    tags = tagger.predict(texts)
    tagger.save_pretrained(tmp_path / "tagger")
    loaded = pe.SequenceTagger.from_pretrained(tmp_path / "tagger")
    assert loaded.embedder.embedders[1].store is None
    for name, value in tagger.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name])
    assert loaded.predict(texts) == tags
    loaded.embedder.embedders[1].attach(tmp_path / "store" / "store")
    assert loaded.predict(texts) == tags
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: tagger.predict(texts), range(16))) == [tags] * 16


def test_attaches_only_its_own_features(tmp_path: Path) -> None:
    embedder = stored(tmp_path)
    others = {"weights": build_encoder(0, pooling="mean"), "pooling": build_encoder(pooling="mean")}
    others["weights"].model.encoder.layer[0].output.dense.weight.data += 0.1
    others["dropped accents"] = build_encoder(pooling="last")
    others["dropped accents"].tokenizer.add_tokens(["gusta", "song", "that"])
    for name, other in others.items():
        store = cache_features(other, SENTENCES, tmp_path / name)
        refused(ValueError, "store must be of this encoder", embedder.attach, store)
    first = cache_features(build_encoder(pooling="last"), SENTENCES, tmp_path / "1", layers=[1])
    refused(ValueError, r"hold the layers None, got \[1\]", embedder.attach, first)
    message = r"layers must hold the layers that LastLayer reads, got \[1\] without \[3\]"
    refused(ValueError, message, CachedEmbedder, build_encoder(pooling="last"), first)
    refused(TypeError, "encoder must be a contextual embedder", CachedEmbedder, toy_table(4))
    assert embedder.attach(None).store is None


def test_wrong_inputs(tmp_path: Path) -> None:
    embedder = stored(tmp_path)
    refused(TypeError, "inputs must be WordFeatures", embedder, torch.zeros(1, 2, 1, 8))
    inputs, _ = embedder.encode([["me"]])
    refused(
        ValueError, r"\(layer, dim\)", embedder, inputs._replace(features=inputs.features[..., :4])
    )
    refused(TypeError, "list of words", embedder.encode, ["me"])
    refused(TypeError, "needs no lexicon|type embedder", embedder.with_lexicon, toy_lexicon())


def test_refuses_a_store_without_sentences_to_standardise_by(tmp_path: Path) -> None:
    refused(
        ValueError, "store must hold sentences to standardise by, got none", stored, tmp_path, []
    )


def test_refuses_what_is_no_fusion(tmp_path: Path) -> None:
    refused(
        TypeError,
        "fusion must be a LayerFusion, such as ScalarMix, got str",
        stored,
        tmp_path,
        fusion="dlfa",
    )
    refused(
        TypeError,
        "fusion must be a LayerFusion, such as ScalarMix, got str",
        build_encoder,
        fusion="last",
    )


def test_runs_in_evaluation_mode_whatever_its_encoder_is_in(tmp_path: Path) -> None:
    embedder = stored(tmp_path, [["me"]], normalize=None)
    expected = embedder.encode(SENTENCES)[0].features
    embedder.encoder.train()
    assert torch.equal(embedder.encode(SENTENCES)[0].features, expected)
    assert embedder.encoder.training
