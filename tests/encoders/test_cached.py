"""Features of a frozen encoder on disk, and the embedder that reads them."""

import copy
import json
from pathlib import Path

import pytest
import torch
from checks import refused
from tiny_models import tiny_model, word_piece_tokenizer
from toys import TAGS, toy_bpe_tokenizer, toy_corpus, toy_table

import polyembed as pe
from polyembed.encoders import CachedEmbedder, LaserEncoder, LaserTop, cache_features
from polyembed.encoders.cached import FeatureStore
from polyembed.training import FitOptions, fit

ONCE = [["that", "song", "me"], ["me", "gusta"], ["me"], ["that"], ["🙂", "", "\ud800"]]
SENTENCES = [*ONCE, [], ["me", "gusta"]]


def build_encoder(**options: object) -> pe.PretrainedWordEncoder:
    return pe.PretrainedWordEncoder(tiny_model("bert"), word_piece_tokenizer(), **options).eval()


def stored(
    folder: Path, sentences=SENTENCES, *, layers=None, dtype=torch.float32, **options
) -> CachedEmbedder:
    encoder = build_encoder(pooling="last")
    store = cache_features(encoder, sentences, folder / "store", layers=layers, dtype=dtype)
    return CachedEmbedder(encoder, store, **options)


@pytest.mark.parametrize("held", [len(SENTENCES), 2, 0])
def test_reads_what_the_encoder_computes(tmp_path, held):
    encoder = build_encoder(pooling="mean")
    expected = encoder(encoder.encode(SENTENCES)[0])
    encoder.train()  # its features are computed in evaluation mode anyway
    store = cache_features(encoder, iter(SENTENCES[:held]), tmp_path / "store", batch_size=2)
    assert store.get(["me gusta"]) is None
    embedder = CachedEmbedder(encoder, store, normalize=None)
    inputs, mask = embedder.encode(SENTENCES)
    assert mask.sum(1).tolist() == list(map(len, SENTENCES))
    torch.testing.assert_close(embedder(inputs), expected, atol=4e-3, rtol=1e-3)
    assert encoder.training


def test_a_row_that_is_computed_in_low_precision_rounds_no_other(tmp_path):
    """Regression: the batch had the dtype of its first row."""
    embedder = stored(tmp_path)
    alone = embedder.encode([["me"]])[0].features[0]
    embedder.encoder.bfloat16()
    assert torch.equal(embedder.encode([["song"], ["me"]])[0].features[1], alone)


def test_a_folder_is_written_whole_or_not_at_all(tmp_path):
    encoder = build_encoder()
    for value in encoder.model.embeddings.LayerNorm.parameters():
        value.data.mul_(1e6)
    options = {"layers": [0]}
    message = "have finite vectors in torch.float16 .*has the widest range"
    refused(ValueError, message, cache_features, encoder, [["me"]], tmp_path / "a", **options)
    assert not list(tmp_path.iterdir())
    cache_features(encoder, [["me"]], tmp_path / "a", dtype=torch.float32, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    refused(FileExistsError, "exists: CachedEmbedder", cache_features, encoder, [], tmp_path / "a")


def test_damaged_stores_are_refused(tmp_path):
    refused(FileNotFoundError, "cache_features writes such a folder", FeatureStore, tmp_path)
    folder = cache_features(build_encoder(), ONCE, tmp_path / "store").folder
    index = json.loads((folder / "index.json").read_text())
    (folder / "index.json").write_text(json.dumps({**index, "sentences": [["me"]]}))
    message = r"intact features .* must have shape \(1, 1, 8\), got"
    refused(ValueError, message, FeatureStore, folder)


@pytest.mark.parametrize(
    ("layers", "fusion", "same"),
    [
        ([-1, 2], pe.LayerAverage([2, -1]), pe.LayerAverage([2, 3])),
        (torch.arange(4), pe.ScalarMix(4), pe.ScalarMix(4)),
        ([1, 3], pe.DLFA(8, 1, branches="local"), pe.DLFA(8, 1, branches="local")),
    ],
)
def test_fusions_over_stored_layers(tmp_path, layers, fusion, same):
    embedder = stored(tmp_path, layers=layers, fusion=fusion, normalize=None).eval()
    same.load_state_dict(fusion.state_dict())
    whole = build_encoder(fusion=same, pooling="last")
    expected = whole(whole.encode(SENTENCES)[0])
    found = embedder(embedder.encode(SENTENCES)[0])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("fusion", [pe.LastLayer(), pe.ScalarMix(4)])
def test_standardises_each_layer(tmp_path, fusion):
    embedder = stored(tmp_path, ONCE, layers=range(4), fusion=fusion)
    inputs, mask = embedder.encode(ONCE)
    rows = inputs.features[mask]
    scaled = (rows - rows.mean(0)) / rows.std(0, correction=0)
    expected = fusion([layer[None] for layer in scaled.unbind(1)])[0]
    torch.testing.assert_close(embedder(inputs)[mask], expected, atol=1e-5, rtol=1e-5)
    assert (embedder(inputs)[~mask] == 0).all()


def test_divides_each_vector_by_its_root_mean_square(tmp_path):
    embedder = stored(tmp_path, normalize="rms")
    inputs, mask = embedder.encode(SENTENCES)
    rows = inputs.features[mask][:, 0]
    expected = rows / rows.square().mean(1, keepdim=True).sqrt()
    torch.testing.assert_close(embedder(inputs)[mask], expected)
    assert (embedder(inputs)[~mask] == 0).all()


def test_words_without_pieces_keep_zeros_and_do_not_count(tmp_path):
    encoder, sentences = build_encoder(max_length=4, overflow="truncate"), [*ONCE, ["me"] * 9]
    store = cache_features(encoder, sentences, tmp_path / "store", dtype=torch.float32)
    embedder = CachedEmbedder(encoder, store)
    inputs, _ = embedder.encode([["me"] * 9])
    cut = (inputs.features == 0).all(-1).all(-1)
    assert cut.tolist() == [[False] * 2 + [True] * 7]
    assert (embedder(inputs)[cut] == 0).all()
    rows = torch.tensor(store.features[:, 0])
    torch.testing.assert_close(embedder.mean[0], rows[rows.any(1)].mean(0))


def test_trains_beside_other_embedders_and_tags_any_text(tmp_path, monkeypatch):
    data = toy_corpus()
    words = [item.words for item in data]
    options = {"layers": range(4), "dtype": torch.float16, "fusion": pe.ScalarMix(4)}
    meta = pe.MetaEmbedding.concat([toy_table(4), stored(tmp_path, words, **options)])
    tagger = pe.SequenceTagger(meta, TAGS)
    before = copy.deepcopy(tagger.state_dict())
    with monkeypatch.context() as patch:  # training never runs the encoder
        patch.setattr(pe.PretrainedWordEncoder, "hidden_states", None)
        fit(tagger, data, data, FitOptions(num_train_epochs=2, metric="accuracy"), progress=False)
    changed = [k for k, value in tagger.state_dict().items() if not torch.equal(value, before[k])]
    assert "embedder.embedders.1.fusion.scores" in changed
    assert not any(".encoder.model." in name for name in changed)
    texts = [["me", "gusta"], ["nunca", "visto"], []]
    tags = tagger.predict(texts)
    tagger.save_pretrained(tmp_path / "tagger")
    loaded = pe.SequenceTagger.from_pretrained(tmp_path / "tagger")
    assert loaded.embedder.embedders[1].store is None
    assert loaded.predict(texts) == tags


def test_attaches_only_its_own_features(tmp_path):
    embedder = stored(tmp_path)
    tokenizer = toy_bpe_tokenizer()
    laser = LaserTop(LaserEncoder(len(tokenizer.dictionary), 4, 3), tokenizer)
    other = cache_features(laser, SENTENCES, tmp_path / "size")
    message = r"store must have \(1, 8\) as \(layer, dim\), got \(1, 3\)"
    refused(ValueError, message, embedder.attach, other)
    first = cache_features(embedder.encoder, SENTENCES, tmp_path / "1", layers=[1])
    refused(ValueError, r"hold the layers None, got \[1\]", embedder.attach, first)
    message = r"layers must hold the layers that LastLayer reads, got \[1\] without \[3\]"
    refused(ValueError, message, CachedEmbedder, embedder.encoder, first)
    assert embedder.attach(None).store is None


@pytest.mark.parametrize(
    ("error", "message", "options"),
    [
        (
            ValueError,
            "normalize must be one of 'standardize', 'rms', got 'l2'",
            {"normalize": "l2"},
        ),
        (ValueError, "store must hold words to standardise by, got none", {"sentences": []}),
        (TypeError, "fusion must be a LayerFusion, such as ScalarMix, got str", {"fusion": "dlfa"}),
    ],
)
def test_bad_arguments(tmp_path, error, message, options):
    refused(error, message, stored, tmp_path, **options)


def test_a_refused_encoder_is_not_frozen():
    encoder = build_encoder()
    refused(TypeError, "fusion", CachedEmbedder, encoder, fusion="dlfa")
    assert next(encoder.parameters()).requires_grad
