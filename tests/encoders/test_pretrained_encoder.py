"""Models of transformers as word vectors, on tiny random models of ten families."""

import copy
import json
import pickle

import pytest
import torch
import transformers
from checks import refused
from saving.folders import change, only, reseal
from tiny_models import CAUSAL_MODELS, MODELS, tiny_model, word_piece_tokenizer
from tokenizers import Tokenizer, normalizers
from torch import nn
from toys import own_words

import polyembed as pe

ALL = [*MODELS, *CAUSAL_MODELS]
TOKENIZER = word_piece_tokenizer()
SENTENCES = [["me", "gusta", "la", "cancion"], [], ["songs", "\u200b", "zzz"]]


def build(kind: str, part: str = "Model", **options) -> nn.Module:
    config = getattr(transformers, f"{kind}Config")(vocab_size=23, pad_token_id=0, **options)
    return getattr(transformers, f"{kind}{part}")(config).eval()


def encoder(name: str = "bert", **options) -> pe.PretrainedWordEncoder:
    return pe.PretrainedWordEncoder(tiny_model(name), TOKENIZER, **options).eval()


@pytest.mark.parametrize("pooling", ["first", "mean"])
@pytest.mark.parametrize("name", ALL)
def test_words_are_pooled_and_fused_states_of_the_model(name, pooling):
    ours, model = encoder(name, pooling=pooling, fusion=pe.ScalarMix(4)), tiny_model(name)
    pieces, _ = ours.encode(SENTENCES)
    found = ours(pieces)
    for row, words in enumerate(SENTENCES):
        valid = pieces.piece_mask[row]
        ids = pieces.piece_ids[row][valid][None]
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        states = model(**inputs, output_hidden_states=True).hidden_states
        for word in range(len(words)):
            own = torch.cat(states).mean(0)[pieces.word_index[row][valid] == word]
            expected = own[0] if pooling == "first" else own.mean(0)
            torch.testing.assert_close(found[row, word], expected, atol=1e-5, rtol=1e-4)
        assert not found[row, len(words) :].any()
    assert torch.equal(found, ours(pieces._replace(num_words=None)))


@pytest.mark.parametrize("freeze", ["none", "embeddings", "all"])
def test_freeze(freeze):
    ours = encoder(freeze=freeze, fusion=pe.ScalarMix(4)).train()
    pieces, _ = ours.encode(SENTENCES)
    ours(pieces).square().sum().backward()
    table = ours.model.get_input_embeddings().weight
    layers = [p for name, p in ours.model.named_parameters() if "embedding" not in name]
    assert (table.grad is not None) == (freeze == "none")
    assert any(p.grad is not None for p in layers) == (freeze != "all")
    assert ours.fusion.scores.grad is not None
    assert ours.model.training == (freeze != "all")
    assert ours.fusion.training


T5 = {"d_model": 8, "d_kv": 4, "num_layers": 2, "num_heads": 2, "d_ff": 11}
LAYERS = {"xlm": "attentions", "t5": "encoder.block", "gpt2": "h.0", "deberta-v3": "encoder.rel_"}


@pytest.mark.parametrize(("name", "layers"), LAYERS.items())
def test_the_embedding_layer_is_frozen_whatever_its_names_are(name, layers):
    """Regression: the norm of XLM, the positions of GPT-2 and all of T5 were trained.

    The table of T5 is called "shared".
    """
    model = build("T5", "EncoderModel", **T5) if name == "t5" else tiny_model(name)
    ours = pe.PretrainedWordEncoder(model, TOKENIZER, freeze="embeddings")
    trained = {name for name, parameter in ours.model.named_parameters() if parameter.requires_grad}
    assert not ours.model.get_input_embeddings().weight.requires_grad
    assert not {"shared.weight", "layer_norm_emb.weight", "wpe.weight"} & trained
    assert any(name.startswith(layers) for name in trained)


def test_the_embeddings_of_canine_are_frozen():
    """Regression: freezing raised an error, because CANINE has no table of pieces."""
    ours = pe.PretrainedWordEncoder(build("Canine", **SMALL), freeze="embeddings")
    assert not any(p.requires_grad for p in ours.model.char_embeddings.parameters())


def test_canine_takes_an_empty_sentence_beside_others():
    """The model itself refuses rows of fewer than four pieces."""
    model = transformers.CanineModel(transformers.CanineConfig(**SMALL))
    ours = pe.PretrainedWordEncoder(model, transformers.CanineTokenizer()).eval()
    together, alone = (ours(ours.encode(x)[0]) for x in ([["me", "gusta"], []], [["me", "gusta"]]))
    torch.testing.assert_close(together, torch.cat([alone, torch.zeros_like(alone)]))


def test_the_windows_of_a_sentence_do_not_depend_on_its_batch():
    """RoBERTa's positions begin after the id of padding.

    The tokenizer's sides of padding and of truncation have no effect.
    """
    left, model = word_piece_tokenizer(), tiny_model("xlm-roberta", max_position_embeddings=16)
    left.padding_side = left.truncation_side = "left"
    short = pe.PretrainedWordEncoder(model, left).eval()
    assert short.max_length == 15
    words = ["me", "gusta", "la", "cancion", "songs"]
    batch = [words * 9, words * 2, words[:2], words * 5, []]
    pieces, _ = short.encode(batch)
    together = short(pieces)
    order = pieces.piece_mask.long().argsort(dim=1, stable=True)  # padding on the left
    moved = type(pieces)(*(part.gather(1, order) for part in pieces[:3]))
    assert torch.equal(short(moved), together)
    for row, sentence in enumerate(batch):
        alone = short(short.encode([sentence])[0])
        torch.testing.assert_close(together[row, : len(sentence)], alone[0], atol=1e-5, rtol=1e-4)
        assert not together[row, len(sentence) :].any()


def test_a_long_sentence_does_not_pad_the_short_ones_to_a_window():
    model = tiny_model("bert", max_position_embeddings=32)
    ours = pe.PretrainedWordEncoder(model, word_piece_tokenizer()).eval()
    shapes = []
    layers = model.encoder
    layers.register_forward_pre_hook(lambda _, inputs: shapes.append(tuple(inputs[0].shape[:2])))
    ours(ours.encode([["me"], *[["me", "songs"] for _ in range(14)], ["me"] * 100])[0])
    assert shapes == [(8, 32), (8, 5), (5, 5)]


def test_the_text_part_of_a_model_that_sees_pictures():
    """Gemma 3 from 4B on is such a model. Its configuration has a hidden size only in its parts."""
    from transformers import Gemma3Config, Gemma3Model

    sight = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28}
    text = tiny_model("gemma3").config.to_dict()
    whole = Gemma3Model(Gemma3Config(text_config=text, vision_config=sight)).eval()
    refused(TypeError, "its text part.*, got Gemma3Model", pe.PretrainedWordEncoder, whole)
    ours = pe.PretrainedWordEncoder(whole.language_model, TOKENIZER).eval()
    assert (ours.embedding_dim, ours.is_causal, ours.pooling) == (8, True, "last")
    pieces, _ = ours.encode([["me", "song"]])
    states = whole(input_ids=pieces.piece_ids).last_hidden_state
    torch.testing.assert_close(ours(pieces)[0, 1], states[0, -2])


def test_the_tokenizer_of_another_model():
    """Regression: ids beyond the table raised an IndexError, or failed an assertion on a GPU."""
    ours = pe.PretrainedWordEncoder(tiny_model("bert", vocab_size=10), TOKENIZER).eval()
    message = r"^tokenizer must be the model's, which has 10 pieces, got one that gives the id 12$"
    refused(ValueError, message, ours.encode, [["me", "song"]])
    assert ours.encode([["me", "la"]])[0].piece_ids.max() == 8


@pytest.mark.parametrize("name", ["T5", "UMT5"])
def test_an_encoder_that_is_half_of_a_model_is_saved_as_such(tmp_path, name):
    """Regression: the encoder was opened as the whole model, whose decoder had no weights."""
    model = build(name, "EncoderModel", **T5)
    ours = pe.PretrainedWordEncoder(model, TOKENIZER, fusion=pe.ScalarMix(3)).eval()
    pieces, _ = ours.encode(SENTENCES)
    ours.save_pretrained(tmp_path / "saved")
    loaded = pe.PretrainedWordEncoder.from_pretrained(tmp_path / "saved")
    assert torch.equal(loaded(pieces), ours(pieces))


HALVES = {"d_model": 8}
for name, size in (("layers", 2), ("attention_heads", 2), ("ffn_dim", 11)):
    HALVES |= {f"encoder_{name}": size, f"decoder_{name}": size}


@pytest.mark.parametrize("name", ["Bart", "Marian", "T5"])
def test_the_encoder_of_a_model_that_decodes_too(name):
    whole = build(name, decoder_start_token_id=2, **(T5 if name.endswith("T5") else HALVES))
    message = r", got \w+, which decodes too \(give its get_encoder\(\), or T5EncoderModel for T5"
    refused(TypeError, message, pe.PretrainedWordEncoder, whole, TOKENIZER)
    half = whole.get_encoder()
    ours = pe.PretrainedWordEncoder(half, TOKENIZER, fusion=pe.LayerAverage([2])).eval()
    assert (ours.is_causal, ours.pooling) == (False, "first")
    pieces, _ = ours.encode([["me", "gusta"]])
    expected = half(input_ids=pieces.piece_ids).last_hidden_state[0]
    torch.testing.assert_close(ours(pieces)[0], expected[[1, 2]])


def test_a_layer_that_is_copied_with_its_encoder_remains_the_encoders():
    """Regression: a network on the copied layer would never have run."""
    ours = encoder()
    copied, layer, again = copy.deepcopy((ours, ours.model.encoder.layer[1], ours))
    assert layer is copied.model.encoder.layer[1]
    assert again is copied
    assert copied.model is not ours.model


SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 16}
SMALL |= {"max_position_embeddings": 128, "num_attention_heads": 2}
MOBILE = {"embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16}
PADDING = {
    "Bert": (False, {}),
    "MobileBert": (True, {**MOBILE, "num_feedforward_networks": 1}),
    "ConvBert": (True, {"embedding_size": 16, "conv_kernel_size": 5, "head_ratio": 1}),
    "FNet": (True, {}),
}


@pytest.mark.parametrize("name", PADDING)
def test_padding_reaches_no_word(name):
    """Masked padding changes the results of some models, so their rows run separately."""
    reaches, options = PADDING[name]
    torch.manual_seed(0)
    model = build(name, **SMALL, **options)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.3)
    encoder = pe.PretrainedWordEncoder(model, TOKENIZER, fusion=pe.ScalarMix(3)).eval()
    assert encoder._padding_counts == reaches
    rows = [["me", "song"], ["gusta"] * 9, []]
    together = encoder(encoder.pieces(rows))
    for i, row in enumerate(rows):
        alone = encoder(encoder.pieces([row]))[0] if row else together[2, :0]
        torch.testing.assert_close(together[i, : len(row)], alone, atol=1e-5, rtol=1e-5)
        assert (together[i, len(row) :] == 0).all()
    together.sum().backward()


@pytest.mark.parametrize(
    ("kind", "options", "causal"),
    [
        ("Llama", {"num_key_value_heads": 2}, True),
        ("Llama", {"num_key_value_heads": 2, "is_causal": False}, False),
        ("Mixtral", {"hidden_size": 256, "num_key_value_heads": 2}, True),
        ("CLIPText", {"eos_token_id": 3, "bos_token_id": 2}, True),
        ("Bert", {}, False),
    ],
)
def test_causal_is_what_a_model_does(kind, options, causal):
    options = {**SMALL, "return_dict": False, **options}
    encoder = pe.PretrainedWordEncoder(build(kind, **options), TOKENIZER)
    assert encoder(encoder.pieces(SENTENCES)).shape[:2] == (3, 4)
    assert (encoder.is_causal, encoder.pooling) == (causal, "last" if causal else "first")


def test_the_rules_of_a_folder_are_those_of_its_file(tmp_path):
    """A tokenizer class that the folder names would build different rules when it is opened."""
    slow = transformers.RobertaTokenizer().train_new_from_iterator(["me gusta la song"] * 20, 300)
    slow.save_pretrained(tmp_path)
    core = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    core.normalizer = normalizers.Replace("gusta", "song")
    core.save(str(tmp_path / "tokenizer.json"))
    config = transformers.RobertaConfig(**SMALL, vocab_size=len(slow))
    transformers.RobertaModel(config).save_pretrained(tmp_path)
    encoder = pe.PretrainedWordEncoder(tmp_path)
    encoder.save_pretrained(tmp_path / "saved")
    for opened in (encoder, pe.PretrainedWordEncoder.from_pretrained(tmp_path / "saved")):
        found = opened.pieces([["gusta", "ME"]]).piece_ids[0].tolist()
        assert found == core.encode(" gusta ME").ids


@pytest.mark.parametrize("name", MODELS)
def test_saved_and_loaded(tmp_path, name):
    ours = encoder(name, fusion=pe.DLFA(8, 1), pooling="mean", freeze="embeddings", max_length=5)
    ours.save_pretrained(tmp_path / "saved")
    state = torch.get_rng_state()
    loaded = pe.PretrainedWordEncoder.from_pretrained(tmp_path / "saved")
    assert torch.equal(torch.get_rng_state(), state)
    assert repr(loaded) == repr(ours)
    assert torch.equal(loaded(loaded.encode(SENTENCES)[0]), ours(ours.encode(SENTENCES)[0]))
    for one, other in zip(loaded.parameters(), ours.parameters(), strict=True):
        assert one.requires_grad == other.requires_grad


@pytest.mark.parametrize("name", ["bert", "gemma3"])
def test_pickled_after_it_ran(name):
    """Transformers adds local functions to a model when it returns its hidden states."""
    ours = encoder(name, fusion=pe.ScalarMix(4))
    pieces, _ = ours.encode(SENTENCES)
    expected = ours(pieces)
    for other in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):
        assert torch.equal(other(pieces), expected)
        assert torch.equal(ours(pieces), expected)


def test_the_positions_of_ibert_begin_after_its_padding():
    assert pe.PretrainedWordEncoder(build("IBert", **SMALL)).max_length == 127


@pytest.mark.filterwarnings("ignore:torch.(ao.)?quantiz")
def test_dynamically_quantised():
    tagger = pe.SequenceTagger(encoder(fusion=pe.DLFA(8, 1)), ["X", "Y"]).eval()
    small = torch.ao.quantization.quantize_dynamic(tagger, {nn.Linear}, torch.qint8)
    mine, theirs = (one.emissions(*tagger.encode(SENTENCES)) for one in (tagger, small))
    torch.testing.assert_close(mine, theirs, atol=0.1, rtol=0.1)


def test_scratch():
    ours = pe.PretrainedWordEncoder.scratch(TOKENIZER, num_layers=2, hidden_size=12, num_heads=3)
    assert ours(ours.encode(SENTENCES)[0]).shape == (3, 4, 12)
    assert (ours.num_hidden_states, ours.model.config.vocab_size) == (3, len(TOKENIZER))


def other_tokenizer(text: str) -> str:
    content = json.loads(text)
    vocabulary = content["model"]["vocab"]
    vocabulary |= {"a": vocabulary["me"], "me": vocabulary["a"]}
    return json.dumps(content)


@pytest.mark.parametrize(
    ("file", "edit", "message"),
    [
        ("encoder-*/config.json", lambda text: f'{text[:-2]}, "backbone": "org/model"}}', "code"),
        (
            "encoder-*/config.json",
            lambda text: text.replace("BertModel", "AutoTokenizer"),
            "architectures must name a model of transformers, got 'AutoTokenizer'$",
        ),
        ("encoder-*/pytorch_model.bin", lambda text: "", "hold the files of a model alone"),
        ("tokenizer-*/tokenizer.json", other_tokenizer, "cut words as the one that was saved"),
        (
            "tokenizer-*/tokenizer_config.json",
            lambda text: json.dumps({**json.loads(text), "fast_tokenizer_files": ["/etc/x.json"]}),
            r"must name no file elsewhere, got \['fast_tokenizer_files",
        ),
    ],
)
def test_folders_of_strangers(tmp_path, file, edit, message):
    encoder().save_pretrained(tmp_path)
    folder, name = file.split("/")
    path = only(tmp_path, folder) / name
    path.write_text(edit(path.read_text().rstrip() + "\n" if path.exists() else ""))
    change(tmp_path, lambda config: config["digests"].setdefault(f"{path.parent.name}/{name}", ""))
    reseal(tmp_path)
    refused(ValueError, message, pe.PretrainedWordEncoder.from_pretrained, tmp_path)


def test_saving_again_mends_a_damaged_subfolder(tmp_path):
    ours = encoder()
    ours.save_pretrained(tmp_path)
    (only(tmp_path, "encoder-*") / "config.json").unlink()
    ours.save_pretrained(tmp_path)
    assert pe.PretrainedWordEncoder.from_pretrained(tmp_path).embedding_dim == ours.embedding_dim


def test_what_cannot_be_opened_again_is_not_saved(tmp_path):
    ours, model = encoder(), tiny_model("bert")
    own = pe.PretrainedWordEncoder(type("Own", (type(model),), {})(model.config), TOKENIZER)
    ours.tokenizer = object()
    shorter = encoder()
    del shorter.model.encoder.layer[2]
    for module, error, message in (
        (own, TypeError, "^model must be a public class of transformers to be saved, got Own$"),
        (ours, TypeError, "^tokenizer must be of transformers to be saved, got object$"),
        (shorter, ValueError, r"^model must have the weights of its .*, got \['encoder.layer.2."),
    ):
        refused(error, message, module.save_pretrained, tmp_path / "saved")


def test_a_sentence_beyond_the_limit():
    """Words beyond the limit have no pieces, but are still tagged."""
    strict, short = (encoder(overflow=how, max_length=6) for how in ("error", "truncate"))
    rows = [["me"] * 9, ["gusta"]]
    refused(ValueError, "^sentence .me me .* must have at most 6 pieces", strict.encode, rows)
    whole = encoder().encode(rows)[0]
    refused(ValueError, "^piece_ids must have at most 6 pieces, got 11$", short, whole)
    found = short(short.encode(rows)[0])
    assert found.any(-1).tolist() == [[True] * 4 + [False] * 5, [True] + [False] * 8]
    assert list(map(len, pe.SequenceTagger(short, ["X", "Y"]).predict(rows))) == [9, 1]


@own_words
@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ValueError, "^freeze must be one of 'none', 'emb", lambda: encoder(freeze="some")),
        (ValueError, "^max_length must leave room .*, got 2$", lambda: encoder(max_length=2)),
        (
            TypeError,
            "^model must be an encoder of transformers, got Linear",
            lambda: pe.PretrainedWordEncoder(nn.Linear(2, 2)),
        ),
        (
            TypeError,
            "^model must be an encoder of text, .*, got ViTModel, which reads pixel_values",
            lambda: pe.PretrainedWordEncoder(build("ViT", **SMALL)),
        ),
        (
            TypeError,
            "^tokenizer must be of transformers .*, got NoneType$",
            lambda: pe.PretrainedWordEncoder(tiny_model("bert")).encode([["me"]]),
        ),
    ],
)
def test_bad_input(error, message, call):
    refused(error, message, call)
