import json
import os
import re
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest
import sentencepiece as spm
import torch
from checks import refused
from killing import run_killed
from tiny_models import CAUSAL_MODELS, MODELS, slow_tokenizer, tiny_model, word_piece_tokenizer
from tokenizers import normalizers, processors
from toys import own_words
from transformers import XLMTokenizer

import polyembed as pe
from polyembed.encoders import FeatureStore, LaserEncoder, cache_features, pool_words
from polyembed.encoders import feature_store as stores
from polyembed.encoders._identity import encoder_checksum
from polyembed.text import SentencePieceTokenizer

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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_holds_what_the_encoder_computes(tmp_path: Path, dtype: torch.dtype, pooling: str) -> None:
    encoder = build_encoder(pooling=pooling)
    store = cache_features(encoder, SENTENCES, tmp_path, dtype=dtype, batch_size=2)
    assert len(store) == 6  # one is there twice
    for words in SENTENCES:
        found = store.get(words)
        assert found is not None
        assert found.dtype == dtype
        expected = (
            encoder(encoder.encode([words])[0])[0, :, None] if words else torch.zeros(0, 1, 8)
        )
        torch.testing.assert_close(
            found.float(), expected, atol=4 * torch.finfo(dtype).eps, rtol=torch.finfo(dtype).eps
        )


def test_holds_layers(tmp_path: Path) -> None:
    encoder = build_encoder()
    store = cache_features(
        encoder.train(), SENTENCES, tmp_path, layers=[0, -1], dtype=torch.float32
    )
    assert encoder.training  # unchanged
    encoder.eval()
    assert store.layers == [0, -1]
    pieces, _ = encoder.encode([["that", "song", "me"]])
    states = encoder.hidden_states(pieces, all_layers=True)
    found = store.get(["that", "song", "me"])
    for i, layer in enumerate(store.layers):
        pooled = pool_words(states[layer], pieces.word_index, 3)
        torch.testing.assert_close(found[None, :, i], pooled, atol=1e-6, rtol=1e-6)


def test_words_end_where_they_ended(tmp_path: Path) -> None:
    store = cache_features(build_encoder(), [["me gusta"], ["a", "b"]], tmp_path)
    assert store.get(["me", "gusta"]) is None
    assert ["me", "gusta"] not in store
    assert ["me gusta"] in store
    assert ["ab"] not in store


def test_computes_only_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, seen = build_encoder(), []
    compute = stores.compute_features
    monkeypatch.setattr(
        stores,
        "compute_features",
        lambda encoder, batch, n: seen.extend(batch) or compute(encoder, batch, n),
    )
    cache_features(encoder, SENTENCES[:3], tmp_path)
    assert len(seen) == 3
    store = cache_features(encoder, (words for words in SENTENCES), tmp_path)
    assert len(seen) == 6
    assert all(words in store for words in SENTENCES)


KILLED = """
import os, signal
from encoders.test_feature_store import build_encoder
from polyembed.encoders import cache_features, feature_store
write = feature_store._Writer.flush
def flush(self):
    write(self)
    self.features.write(b"half")
    self.index.write(b"x" * 25)
    os.kill(os.getpid(), signal.SIGKILL)
feature_store._Writer.flush = flush
feature_store.BATCHES_TOGETHER = 1
cache_features(build_encoder(), [["me"], ["that", "song"], ["gusta"]], folder, batch_size=2)
"""


def test_goes_on_after_a_kill(tmp_path: Path) -> None:
    run_killed(str(Path(__file__).parent), KILLED, tmp_path / "killed")
    half = FeatureStore(tmp_path / "killed")
    assert len(half) == 2
    assert ["me"] in half
    sentences = [["me"], ["that", "song"], ["gusta"]]
    found = cache_features(build_encoder(), sentences, tmp_path / "killed")
    whole = cache_features(build_encoder(), sentences, tmp_path / "whole")
    for words in sentences:
        torch.testing.assert_close(found.get(words), whole.get(words), atol=1e-3, rtol=1e-3)


def test_goes_on_after_a_full_disk(tmp_path: Path) -> None:
    sentences = [[f"w{i}", "me"] for i in range(80)]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        with pytest.raises(OSError, match=re.escape(str(tmp_path))):
            cache_features(build_encoder(), sentences, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(FeatureStore(tmp_path)) == 0
    assert len(cache_features(build_encoder(), sentences, tmp_path)) == 80


@pytest.mark.parametrize("cut", [1, 17, 100])
def test_truncated_features_are_missing(tmp_path: Path, cut: int) -> None:
    store = cache_features(build_encoder(), SENTENCES, tmp_path)
    path = tmp_path / "features.bin"
    os.truncate(path, path.stat().st_size - cut)
    short = FeatureStore(tmp_path)
    assert len(short) < len(store)
    again = cache_features(build_encoder(), SENTENCES, tmp_path)
    for words in SENTENCES:
        assert torch.equal(again.get(words), store.get(words)) or words not in short


def test_changed_numbers_are_refused(tmp_path: Path) -> None:
    store = cache_features(build_encoder(), [["me", "gusta"]], tmp_path)
    path = tmp_path / "features.bin"
    path.write_bytes(b"\0" + path.read_bytes()[1:])
    refused(
        ValueError,
        "hold the vectors that were written.*other bytes",
        FeatureStore(store.folder).get,
        ["me", "gusta"],
    )
    refused(
        ValueError,
        "hold the vectors that were written.*other bytes",
        FeatureStore(store.folder).statistics,
    )


OTHERS = {
    "weights": lambda: (build_encoder(1), {}),
    "pooling": lambda: (build_encoder(pooling="last"), {}),
    "layers": lambda: (build_encoder(), {"layers": [1]}),
    "dtype": lambda: (build_encoder(), {"dtype": torch.float32}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_encoder_is_refused(tmp_path: Path, name: str) -> None:
    cache_features(build_encoder(), SENTENCES, tmp_path)
    encoder, options = OTHERS[name]()
    refused(ValueError, str(tmp_path), cache_features, encoder, SENTENCES, tmp_path, **options)


def test_another_tokenizer_is_refused(tmp_path: Path) -> None:
    cache_features(build_encoder(), SENTENCES, tmp_path)
    other = build_encoder()
    other.tokenizer.add_tokens(["gusta"])
    refused(ValueError, "hold features of this encoder", cache_features, other, SENTENCES, tmp_path)


def lower_case(encoder: pe.PretrainedWordEncoder) -> None:
    encoder.tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()


def without_special_pieces(encoder: pe.PretrainedWordEncoder) -> None:
    encoder.tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A", pair="$A $B"
    )


def other_window(encoder: pe.PretrainedWordEncoder) -> None:
    encoder.model.config.sliding_window = 2


def stronger_adapter(encoder: pe.PretrainedWordEncoder) -> None:
    next(part for part in encoder.modules() if hasattr(part, "lora_alpha")).scaling["default"] *= 2


def shorter(encoder: pe.PretrainedWordEncoder) -> None:
    encoder.max_length = 8


SETTINGS = [lower_case, without_special_pieces, other_window, stronger_adapter, shorter]


@pytest.mark.parametrize("change", SETTINGS, ids=lambda change: change.__name__)
def test_other_settings_of_the_same_weights_are_refused(tmp_path: Path, change) -> None:
    encoder = build_encoder()
    if change is stronger_adapter:
        peft = pytest.importorskip("peft", reason="adapters need the package peft")
        model = peft.inject_adapter_in_model(
            peft.LoraConfig(r=2, target_modules=["query"]), tiny_model("bert")
        )
        encoder = pe.PretrainedWordEncoder(model, word_piece_tokenizer()).eval()
    cache_features(encoder, SENTENCES, tmp_path)
    cache_features(encoder, SENTENCES, tmp_path)  # the same one
    change(encoder)
    refused(
        ValueError, "hold features of this encoder", cache_features, encoder, SENTENCES, tmp_path
    )


@pytest.mark.parametrize("name", [*MODELS, *CAUSAL_MODELS])
def test_an_encoder_that_was_saved_and_loaded_is_the_same(tmp_path: Path, name: str) -> None:
    encoder = pe.PretrainedWordEncoder(
        tiny_model(name), word_piece_tokenizer(), max_length=12
    ).eval()
    store = cache_features(encoder, SENTENCES, tmp_path / "store")
    encoder.save_pretrained(tmp_path / "saved")
    loaded = pe.PretrainedWordEncoder.from_pretrained(tmp_path / "saved")
    assert len(cache_features(loaded, SENTENCES, store.folder)) == len(store)


def test_other_sentencepiece_models_are_told_apart(tmp_path: Path) -> None:
    encoders = []
    for number, text in enumerate(("me gusta la cancion", "that song of songs")):
        (tmp_path / "text").write_text(f"{text}\n" * 20)
        options = {"vocab_size": 20, "hard_vocab_limit": False, "minloglevel": 2}
        spm.SentencePieceTrainer.train(
            input=str(tmp_path / "text"), model_prefix=str(tmp_path / f"{number}"), **options
        )
        pieces = spm.SentencePieceProcessor(model_file=str(tmp_path / f"{number}.model"))
        encoders.append(pe.PretrainedWordEncoder(tiny_model("bert", vocab_size=40), pieces).eval())
    cache_features(encoders[0], SENTENCES, tmp_path / "store")
    refused(
        ValueError,
        "hold features of this",
        cache_features,
        encoders[1],
        SENTENCES,
        tmp_path / "store",
    )


@own_words
def test_other_cuts_by_the_same_pieces_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("me gusta la cancion that song\n" * 20)
    options = {"vocab_size": 20, "hard_vocab_limit": False, "minloglevel": 2}
    spm.SentencePieceTrainer.train(
        input=str(tmp_path / "text"), model_prefix=str(tmp_path / "m"), **options
    )
    model = spm.SentencePieceProcessor(model_file=str(tmp_path / "m.model"))
    torch.manual_seed(0)
    laser = LaserEncoder(20, 4, 3, num_layers=2)
    cased = [
        pe.LaserTop(laser, SentencePieceTokenizer(model, lowercase=lower)).eval()
        for lower in (True, False)
    ]
    assert len({encoder_checksum(encoder) for encoder in cased}) == 2
    slow = slow_tokenizer(tmp_path)
    before = encoder_checksum(
        pe.PretrainedWordEncoder(tiny_model("xlm", vocab_size=40), slow).eval()
    )
    slow.bpe_ranks = {}
    (tmp_path / "merges.txt").write_text("#version: 0.2\nb c</w>\n")
    fewer = XLMTokenizer(
        str(tmp_path / "vocab.json"),
        str(tmp_path / "merges.txt"),
        do_lowercase_and_remove_accent=False,
    )
    assert (
        encoder_checksum(pe.PretrainedWordEncoder(tiny_model("xlm", vocab_size=40), fewer).eval())
        != before
    )


def test_a_tokenizer_of_the_callers_own() -> None:
    found = []
    for vocabulary in ({"me": 0}, {"me": 1}):
        encoder = build_encoder()
        encoder.tokenizer = SimpleNamespace(get_vocab=lambda vocabulary=vocabulary: vocabulary)
        found.append(encoder_checksum(encoder))
    assert len({*found}) == 2
    encoder.tokenizer = object()
    assert encoder_checksum(encoder) not in found


def test_a_head_with_labels_changes_no_vector() -> None:
    from transformers import BertForTokenClassification

    bare = tiny_model("bert")
    headed = BertForTokenClassification(type(bare.config)(**bare.config.to_dict()))
    headed.bert.load_state_dict(bare.state_dict(), strict=False)
    del bare.pooler
    bare.pooler = None
    pair = (
        pe.PretrainedWordEncoder(model, word_piece_tokenizer()).eval() for model in (bare, headed)
    )
    assert len({encoder_checksum(encoder) for encoder in pair}) == 1


def test_an_empty_store_may_change_its_kind(tmp_path: Path) -> None:
    """What the message about numbers beyond float16 says to do was refused."""
    encoder = build_encoder()
    for value in encoder.model.embeddings.LayerNorm.parameters():
        value.data.mul_(1e6)
    options = {"layers": [0]}
    refused(
        ValueError, "has the widest range", cache_features, encoder, [["me"]], tmp_path, **options
    )
    assert len(cache_features(encoder, [["me"]], tmp_path, dtype=torch.float32, **options)) == 1
    message = r"store\.json: dtype must be 'float16', got 'float32' \(remove the folder, or choose another\)$"
    refused(ValueError, message, cache_features, encoder, [["me"]], tmp_path, **options)
    message = "^dtype must be one of torch.float16, torch.bfloat16, torch.float32, got 'float32'$"
    refused(ValueError, message, cache_features, encoder, [["me"]], tmp_path, dtype="float32")


def test_numbers_beyond_the_dtype(tmp_path: Path) -> None:
    encoder = build_encoder()
    for value in encoder.model.embeddings.LayerNorm.parameters():
        value.data.mul_(1e6)
    refused(
        ValueError,
        r"finite vectors in torch.float16.*\['me'\]",
        cache_features,
        encoder,
        [["me"]],
        tmp_path,
        layers=[0],
    )
    cache_features(encoder, [["me"]], tmp_path / "wide", layers=[0], dtype=torch.bfloat16)


@pytest.mark.parametrize("layers", [[], [4], [-5], ["1"], 1])
def test_wrong_layers(tmp_path: Path, layers: object) -> None:
    refused(
        ValueError, "layers", cache_features, build_encoder(), SENTENCES, tmp_path, layers=layers
    )


def test_what_is_no_contextual_embedder(tmp_path: Path) -> None:
    lexicon = pe.Lexicon(["me"])
    embedder = pe.SourceEmbedding.from_embedding(torch.nn.Embedding(3, 8), lexicon)
    refused(
        TypeError,
        "encoder must be a contextual embedder.*SourceEmbedding",
        cache_features,
        embedder,
        SENTENCES,
        tmp_path,
    )


def test_wrong_sentences_are_named(tmp_path: Path) -> None:
    refused(
        TypeError,
        r"sentences\[1\].*the string 'gusta'",
        cache_features,
        build_encoder(),
        [["me"], "gusta"],
        tmp_path,
    )


def test_two_writers(tmp_path: Path) -> None:
    def sentences():
        yield ["me"]
        cache_features(build_encoder(), [["gusta"]], tmp_path)

    refused(
        RuntimeError,
        "one process at a time",
        cache_features,
        build_encoder(),
        sentences(),
        tmp_path,
    )


@pytest.mark.parametrize(
    "edit",
    [
        {"dim": 0},
        {"dim": "8"},
        {"dim": 1 << 40},
        {"dtype": "int8"},
        {"layers": []},
        {"layers": "all"},
        {"encoder": 1},
        {"format_version": 1},
    ],
)
def test_descriptions_that_are_wrong(tmp_path: Path, edit: dict[str, object]) -> None:
    cache_features(build_encoder(), SENTENCES, tmp_path)
    path = tmp_path / "store.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **edit}))
    refused(ValueError, str(path), FeatureStore, tmp_path)


def test_a_copy_reads_the_same_file(tmp_path: Path) -> None:
    import pickle

    store = cache_features(build_encoder(), SENTENCES, tmp_path)
    copy = pickle.loads(pickle.dumps(store))
    assert torch.equal(copy.get(["me"]), store.get(["me"]))


def test_statistics(tmp_path: Path) -> None:
    store = cache_features(build_encoder(), SENTENCES, tmp_path, layers=[0, 1], dtype=torch.float32)
    rows = torch.cat([store.get(words) for words in dict.fromkeys(map(tuple, SENTENCES))]).double()
    mean, deviation = store.statistics()
    torch.testing.assert_close(mean, rows.mean(0))
    torch.testing.assert_close(deviation, rows.std(0, correction=0))
    mean.zero_()  # the caller's own
    torch.testing.assert_close(store.statistics()[0], rows.mean(0))


def test_a_number_that_hardly_differs_is_not_blown_up(tmp_path: Path) -> None:
    encoder = build_encoder()
    norm = encoder.model.encoder.layer[-1].output.LayerNorm  # as MiniLM's, with weights of 5e-33
    norm.weight.data[3], norm.weight.data[5] = 5e-33, 1e-9
    store = cache_features(encoder, SENTENCES, tmp_path, dtype=torch.float32)
    deviation = store.statistics()[1][0]
    assert deviation[3] == deviation[5] == 1
    assert (deviation[[0, 1, 2, 4, 6, 7]] != 1).all()


def test_what_is_no_list_of_words(tmp_path: Path) -> None:
    store = cache_features(build_encoder(), [["me"]], tmp_path)
    refused(TypeError, "^words must be a list of words, got the string 'me'$", store.get, "me")
    refused(TypeError, "^words must be strings, got int$", store.get, [1])
    refused(
        TypeError, "^words must be a list of words, got the string 'me'$", lambda: "me" in store
    )


def test_a_folder_without_a_store(tmp_path: Path) -> None:
    message = (
        r"^folder must hold features \(cache_features writes them\), got .* without store\.json$"
    )
    refused(FileNotFoundError, message, FeatureStore, tmp_path)
    cache_features(build_encoder(), [["me"]], tmp_path)
    (tmp_path / "features.bin").unlink()
    refused(
        FileNotFoundError, r"^folder must name a file, got .*features\.bin", FeatureStore, tmp_path
    )
