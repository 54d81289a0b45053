from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from checks import refused
from encoders.test_feature_store import SENTENCES, build_encoder
from toys import TAGS, toy_corpus, toy_lexicon, toy_table

import polyembed as pe
from polyembed.encoders import CachedEmbedder, LayerFusion, cache_features
from polyembed.training import FitOptions, fit


def stored(
    folder: Path, sentences=SENTENCES, *, layers=None, dtype=torch.float32, **options
) -> CachedEmbedder:
    encoder = build_encoder(pooling="last")
    return CachedEmbedder(
        encoder, cache_features(encoder, sentences, folder, layers=layers, dtype=dtype), **options
    )


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
        ([2, 3], pe.LayerAverage(), pe.LayerAverage([2, 3])),
        (range(4), pe.ScalarMix(4), pe.ScalarMix(4)),
        ([1, 3], pe.DLFA(8, 0, branches="local"), pe.DLFA(8, 1, branches="local")),
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
    store = cache_features(encoder, [*sentences, ("me",) * 9], tmp_path, dtype=torch.float32)
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
        layers=[1, 3],
        dtype=torch.float16,
        fusion=pe.ScalarMix(2),
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
    loaded.embedder.embedders[1].attach(tmp_path / "store")
    assert loaded.predict(texts) == tags
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: tagger.predict(texts), range(16))) == [tags] * 16


def test_attaches_only_its_own_features(tmp_path: Path) -> None:
    embedder = stored(tmp_path / "a")
    other = build_encoder(1, pooling="last")
    store = cache_features(other, SENTENCES, tmp_path / "b")
    refused(ValueError, "store must be of this encoder", embedder.attach, store)
    refused(
        ValueError,
        r"store must hold the layers None, got \[1\]",
        embedder.attach,
        more(tmp_path / "c"),
    )
    refused(TypeError, "store must be a FeatureStore", embedder.attach, 3)
    refused(ValueError, "store must hold the layers", CachedEmbedder, other, store, layers=[2])
    refused(TypeError, "encoder must be a contextual embedder", CachedEmbedder, toy_table(4))
    assert embedder.attach(None).store is None


def more(folder: Path):
    return cache_features(build_encoder(pooling="last"), SENTENCES, folder, layers=[1])


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


def test_refuses_what_is_no_store() -> None:
    refused(
        TypeError,
        "^store must be a FeatureStore or its folder, got int$",
        CachedEmbedder,
        build_encoder(),
        3,
    )
