"""Any transformers model as word vectors, on tiny random ones of ten families."""

import copy
import json
import pickle

import pytest
import torch
import transformers
from checks import refused
from saving.folders import change, only, reseal
from tiny_models import CAUSAL_MODELS, MODELS, tiny_model, word_piece_tokenizer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from torch import nn
from toys import own_words
from transformers import PreTrainedTokenizerFast

import polyembed as pe
from polyembed.text import Pieces

ALL = [*MODELS, *CAUSAL_MODELS]
TOKENIZER = word_piece_tokenizer()
SENTENCES = [["me", "gusta", "la", "cancion"], [], ["songs", "\u200b", "zzz"]]


def encoder(name: str = "bert", **options) -> pe.PretrainedWordEncoder:
    return pe.PretrainedWordEncoder(tiny_model(name), TOKENIZER, **options).eval()


@pytest.mark.parametrize(
    ("name", "pooling"), [(name, "mean") for name in ALL] + [("bert", "first")]
)
def test_words_are_pooled_states_of_the_model(name: str, pooling: str) -> None:
    ours, model = encoder(name, pooling=pooling), tiny_model(name)
    pieces, _ = ours.encode(SENTENCES)
    found = ours(pieces)
    assert found.shape == (3, 4, 8)
    for row, words in enumerate(SENTENCES):
        valid = pieces.piece_mask[row]
        ids = pieces.piece_ids[row][valid][None]
        alone = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
        index = pieces.word_index[row][valid]
        for word in range(4):
            own = alone[index == word]
            expected = (
                torch.zeros(8)
                if word >= len(words)
                else own[0]
                if pooling == "first"
                else own.mean(0)
            )
            torch.testing.assert_close(found[row, word], expected, atol=1e-5, rtol=1e-4)
    assert torch.equal(found, ours(pieces._replace(num_words=None))), (
        "words are counted by the pieces too"
    )


@pytest.mark.parametrize("name", ALL)
def test_fusion_sees_all_layers(name: str) -> None:
    ours = encoder(name, fusion=pe.ScalarMix(4))
    pieces, _ = ours.encode(SENTENCES[:1])
    inputs = {"input_ids": pieces.piece_ids, "attention_mask": pieces.piece_mask.long()}
    states = tiny_model(name)(**inputs, output_hidden_states=True).hidden_states
    assert len(states) == 4
    expected = torch.stack(states).mean(0)[0, 1]
    torch.testing.assert_close(ours(pieces)[0, 0], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_saved_and_loaded(tmp_path, name: str) -> None:
    ours = encoder(name, fusion=pe.DLFA(8, 1), pooling="mean", freeze="embeddings")
    ours.save_pretrained(tmp_path / "saved")
    state = torch.get_rng_state()
    loaded = pe.PretrainedWordEncoder.from_pretrained(tmp_path / "saved")
    assert torch.equal(torch.get_rng_state(), state)
    assert repr(loaded) == repr(ours)
    (pieces, _), (other, _) = ours.encode(SENTENCES), loaded.encode(SENTENCES)
    assert all(torch.equal(one, two) for one, two in zip(pieces[:3], other[:3], strict=True))
    assert torch.equal(loaded(pieces), ours(pieces))
    flags = {name: parameter.requires_grad for name, parameter in ours.named_parameters()}
    assert {name: parameter.requires_grad for name, parameter in loaded.named_parameters()} == flags


@pytest.mark.parametrize("freeze", ["none", "embeddings", "all"])
def test_freeze(freeze: str) -> None:
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


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("xlm", "attentions"),
        ("t5", "encoder.block"),
        ("gpt2", "h.0"),
        ("deberta-v3", "encoder.rel_"),
    ],
)
def test_the_embedding_layer_is_frozen_whatever_its_names_are(name: str, layers: str) -> None:
    """XLM's norm was trained, GPT-2's positions, and all of T5, whose table is called "shared"."""
    model = t5_encoder() if name == "t5" else tiny_model(name)
    ours = pe.PretrainedWordEncoder(model, TOKENIZER, freeze="embeddings")
    trained = {name for name, parameter in ours.model.named_parameters() if parameter.requires_grad}
    assert not ours.model.get_input_embeddings().weight.requires_grad
    assert (
        not {"shared.weight", "layer_norm_emb.weight", "layer_norm_emb.bias", "wpe.weight"}
        & trained
    )
    assert any(name.startswith(layers) for name in trained)


def test_the_windows_of_a_sentence_do_not_depend_on_its_batch() -> None:
    """They were planned by the batch's longest sentence: a tag of a short one could change."""
    short = pe.PretrainedWordEncoder(
        tiny_model("bert", max_position_embeddings=16), TOKENIZER
    ).eval()
    words = ["me", "gusta", "la", "cancion", "songs"]
    batch = [words * 9, words * 2, words[:2], words * 5, []]
    together = short(short.encode(batch)[0])
    for row, sentence in enumerate(batch):
        alone = short(short.encode([sentence])[0])
        torch.testing.assert_close(together[row, : len(sentence)], alone[0], atol=1e-5, rtol=1e-4)
        assert not together[row, len(sentence) :].any()


def test_many_windows_are_run_some_at_a_time(monkeypatch) -> None:
    short = pe.PretrainedWordEncoder(
        tiny_model("bert", max_position_embeddings=16), TOKENIZER
    ).eval()
    pieces, _ = short.encode([["me", "gusta", "la", "cancion", "songs"] * 9, ["me"]])
    expected, sizes, run = short(pieces), [], short._run
    monkeypatch.setattr("polyembed.encoders.pretrained.WINDOWS_AT_ONCE", 3)
    monkeypatch.setattr(
        short,
        "_run",
        lambda ids, *rest, **table: sizes.append(len(ids)) or run(ids, *rest, **table),
    )
    torch.testing.assert_close(short(pieces), expected, atol=1e-5, rtol=1e-4)
    assert len(sizes) > 2
    assert max(sizes) == 3


@pytest.mark.parametrize("name", ["bert", "qwen3"])
def test_the_tokenizers_padding_side_does_not_matter(name: str) -> None:
    left = word_piece_tokenizer()
    left.padding_side = left.truncation_side = "left"
    ours, other = (
        pe.PretrainedWordEncoder(tiny_model(name), part).eval() for part in (TOKENIZER, left)
    )
    assert torch.equal(other(other.encode(SENTENCES)[0]), ours(ours.encode(SENTENCES)[0]))


def test_the_text_part_of_a_model_that_sees_pictures(tmp_path) -> None:
    """Gemma 3 from 4B on: its configuration has no hidden size of its own."""
    from transformers import Gemma3Config, Gemma3Model

    text = tiny_model("gemma3").config.to_dict()
    sight = {
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    whole = Gemma3Model(
        Gemma3Config(text_config=text, vision_config={**sight, "image_size": 28})
    ).eval()
    refused(TypeError, "its text part.*, got Gemma3Model", pe.PretrainedWordEncoder, whole)
    ours = pe.PretrainedWordEncoder(whole.language_model, TOKENIZER).eval()
    assert (ours.embedding_dim, ours.is_causal, ours.pooling) == (8, True, "last")
    pieces, _ = ours.encode([["me", "song"]])
    states = whole(input_ids=pieces.piece_ids).last_hidden_state
    torch.testing.assert_close(ours(pieces)[0, 1], states[0, -2])
    ours.save_pretrained(tmp_path)
    assert torch.equal(pe.PretrainedWordEncoder.from_pretrained(tmp_path)(pieces), ours(pieces))


def test_the_tokenizer_of_another_model(monkeypatch) -> None:
    """Ids beyond the table ended in an IndexError, on a GPU in a failed assertion."""
    ours = pe.PretrainedWordEncoder(tiny_model("bert", vocab_size=10), TOKENIZER).eval()
    monkeypatch.setattr(ours.model, "forward", lambda *_, **__: pytest.fail("ran"))
    message = r"^tokenizer must be the model's, which has 10 pieces, got one that gives the id 12$"
    refused(ValueError, message, ours.encode, [["me", "song"]])
    refused(ValueError, message, ours.encode_pairs, [(["me"], ["song"])])
    assert ours.encode([["me", "la"]])[0].piece_ids.max() == 8


@own_words
def test_models_that_give_no_words(monkeypatch) -> None:
    from transformers import ViTConfig, ViTModel

    sizes = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
    }
    pictures = ViTModel(ViTConfig(image_size=32, **sizes))
    message = r"^model must be an encoder of text, .*, got ViTModel, which reads pixel_values"
    refused(TypeError, message, pe.PretrainedWordEncoder, pictures)
    ours = encoder(fusion=pe.ScalarMix(4))
    run = ours.model.forward

    def without(input_ids, **rest):
        found = run(input_ids, **rest)
        found.hidden_states = None
        return found

    monkeypatch.setattr(ours.model, "forward", without)
    message = "^model must return the hidden states of its layers, got none of BertModel$"
    refused(TypeError, message, ours, ours.encode(SENTENCES)[0])
    monkeypatch.setattr(ours.model, "forward", lambda input_ids, **_: input_ids)
    ours.fusion = pe.encoders.LastLayer()
    refused(TypeError, message, ours, ours.encode(SENTENCES)[0])


def test_positions_behind_the_padding_row_do_not_count() -> None:
    """RoBERTa's kin give the first piece the position after the padding's."""
    model = tiny_model("xlm-roberta", max_position_embeddings=16, pad_token_id=1)
    encoder = pe.PretrainedWordEncoder(model).eval()
    assert encoder.max_length == 14
    ids = torch.full((1, 14), 5)
    pieces = pe.Pieces(ids, torch.ones(1, 14, dtype=torch.bool), torch.arange(14)[None])
    assert encoder(pieces).isfinite().all()


@own_words
def test_a_limit_of_ones_own_is_saved(tmp_path) -> None:
    short = pe.PretrainedWordEncoder(tiny_model("bert"), TOKENIZER, max_length=5).eval()
    assert (
        pe.PretrainedWordEncoder(
            tiny_model("bert", max_position_embeddings=16), max_length=99
        ).max_length
        == 16
    )
    pieces, _ = short.encode([["me"] * 9])
    assert short(pieces).shape == (1, 9, 8)
    assert not torch.equal(short(pieces), encoder()(pieces))
    short.save_pretrained(tmp_path)
    loaded = pe.PretrainedWordEncoder.from_pretrained(tmp_path)
    assert loaded.max_length == 5
    assert torch.equal(loaded(pieces), short(pieces))
    refused(
        ValueError,
        "^max_length must leave room beside the special pieces, got 2$",
        encoder,
        max_length=2,
    )
    refused(ValueError, "^max_length must be a positive integer, got 0$", encoder, max_length=0)
    refused(ValueError, "^max_length must be a positive integer, got '5'$", encoder, max_length="5")


@own_words
def test_too_long_without_windows() -> None:
    words = ["me"] * 20
    for overflow in ("error", "truncate"):
        short = pe.PretrainedWordEncoder(
            tiny_model("bert", max_position_embeddings=16), TOKENIZER, overflow=overflow
        )
        if overflow == "error":
            refused(
                ValueError, r"^sentences\[0\] must have at most 16 pieces", short.encode, [words]
            )
        else:
            pieces, _ = short.eval().encode([words])
            found = short(pieces)
            assert found[0, :14].any(1).all()
            assert not found[0, 14:].any()
        whole = encoder().encode([words])[0]
        refused(ValueError, r"^piece_ids must have at most 16 pieces, got 22$", short, whole)


def t5_encoder(name: str = "T5") -> nn.Module:
    import transformers

    sizes = {"vocab_size": 23, "d_model": 8, "d_kv": 4, "num_layers": 2, "num_heads": 2, "d_ff": 11}
    return getattr(transformers, f"{name}EncoderModel")(
        getattr(transformers, f"{name}Config")(**sizes)
    )


@pytest.mark.parametrize("name", ["T5", "UMT5"])
def test_an_encoder_that_is_half_of_a_model_is_saved_as_such(tmp_path, name: str) -> None:
    """It was opened as the whole, whose decoder had no weights."""
    ours = pe.PretrainedWordEncoder(t5_encoder(name), TOKENIZER, fusion=pe.ScalarMix(3)).eval()
    pieces, _ = ours.encode(SENTENCES)
    ours.save_pretrained(tmp_path / "saved")
    loaded = pe.PretrainedWordEncoder.from_pretrained(tmp_path / "saved")
    assert type(loaded.model) is type(ours.model)
    assert torch.equal(loaded(pieces), ours(pieces))
    path = only(tmp_path / "saved", "encoder-*") / "config.json"
    text = path.read_text()
    for other in ("AutoTokenizer", "PreTrainedTokenizerFast", "no_such_thing"):
        path.write_text(text.replace(f"{name}EncoderModel", other))
        reseal(tmp_path / "saved")
        message = f"architectures must name a model of transformers, got '{other}'$"
        with pytest.raises(ValueError, match=message):
            pe.PretrainedWordEncoder.from_pretrained(tmp_path / "saved")


STRANGE = {
    "backbone": ("config.json", lambda text: text[:-2] + ', "backbone": "org/model"}', "code"),
    "kernels": ("config.json", lambda text: text[:-2] + ', "attn_implementation": "a/b"}', "code"),
    "adapter": ("adapter_config.json", lambda text: "{}", "hold the files of a model alone"),
    "pickle": ("pytorch_model.bin", lambda text: "", "hold the files of a model alone"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_folders_of_strangers(tmp_path, name: str) -> None:
    encoder().save_pretrained(tmp_path)
    file, edit, message = STRANGE[name]
    path = only(tmp_path, "encoder-*") / file
    path.write_text(edit(path.read_text().rstrip() + "\n" if path.exists() else ""))

    def add(config) -> None:
        config["digests"].setdefault(f"{path.parent.name}/{file}", "")

    change(tmp_path, add)
    reseal(tmp_path)
    with pytest.raises(ValueError, match=message):
        pe.PretrainedWordEncoder.from_pretrained(tmp_path)


def test_another_tokenizer_in_a_saved_folder(tmp_path) -> None:
    encoder().save_pretrained(tmp_path)
    path = only(tmp_path, "tokenizer-*") / "tokenizer.json"
    content = json.loads(path.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary |= {"a": vocabulary["me"], "me": vocabulary["a"]}
    path.write_text(json.dumps(content))
    reseal(tmp_path)
    with pytest.raises(ValueError, match="the tokenizer must cut words as the one that was saved"):
        pe.PretrainedWordEncoder.from_pretrained(tmp_path)


HALVES = ("Bart", "MBart", "M2M100", "Marian", "Pegasus", "T5", "MT5")


@pytest.mark.parametrize("name", HALVES)
def test_the_encoder_of_a_model_that_decodes_too(name: str) -> None:
    import transformers

    sizes = {"d_model": 8, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 2}
    sizes |= {"encoder_ffn_dim": 11, "decoder_ffn_dim": 11, "decoder_attention_heads": 2}
    if name in ("T5", "MT5"):
        sizes = {"d_model": 8, "d_kv": 4, "num_layers": 2, "num_heads": 2, "d_ff": 11}
    config = getattr(transformers, f"{name}Config")(
        vocab_size=23, pad_token_id=0, decoder_start_token_id=2, **sizes
    )
    whole = getattr(transformers, f"{name}Model")(config).eval()
    message = r"^model must be an encoder of transformers, got \w+, which decodes too \(give its get_encoder\(\), or T5Enc"
    refused(TypeError, message, pe.PretrainedWordEncoder, whole, TOKENIZER)
    half = whole.get_encoder()
    ours = pe.PretrainedWordEncoder(half, TOKENIZER, fusion=pe.LayerAverage([2])).eval()
    assert (ours.is_causal, ours.pooling) == (False, "first")
    pieces, _ = ours.encode([["me", "gusta"]])
    expected = half(input_ids=pieces.piece_ids).last_hidden_state[0]
    torch.testing.assert_close(ours(pieces)[0], expected[[1, 2]])


@pytest.mark.parametrize("name", ["bert", "gemma3"])
def test_pickled_after_it_ran(name: str) -> None:
    """Transformers adds local functions to a model that has returned its hidden states."""
    ours = encoder(name, fusion=pe.ScalarMix(4))
    pieces, _ = ours.encode(SENTENCES)
    expected = ours(pieces)
    for other in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours), copy.copy(ours)):
        assert torch.equal(other(pieces), expected)
        assert torch.equal(ours(pieces), expected)
    assert copy.copy(ours).model is ours.model


def test_a_layer_that_is_copied_with_its_encoder_remains_the_encoders() -> None:
    """A network in it would never have run."""
    ours = encoder()
    copied, layer, again = copy.deepcopy((ours, ours.model.encoder.layer[1], ours))
    assert layer is copied.model.encoder.layer[1]
    assert again is copied
    assert copied.model is not ours.model


def test_what_cannot_be_opened_again_is_not_saved(tmp_path) -> None:
    model = type("Own", (type(tiny_model("bert")),), {})(tiny_model("bert").config)
    with pytest.raises(
        TypeError, match=r"^model must be a public class of transformers to be saved, got Own$"
    ):
        pe.PretrainedWordEncoder(model, TOKENIZER).save_pretrained(tmp_path / "one")
    ours = encoder()
    ours.tokenizer = object()
    with pytest.raises(
        TypeError, match=r"^tokenizer must be of transformers to be saved, got object$"
    ):
        ours.save_pretrained(tmp_path / "two")


def bart() -> nn.Module:
    from transformers import BartConfig, BartModel

    names = ("layers", "attention_heads", "ffn_dim")
    sizes = {f"{part}_{name}": 2 for part in ("encoder", "decoder") for name in names}
    return BartModel(BartConfig(vocab_size=23, d_model=8, pad_token_id=0, **sizes))


def test_heads_are_left_out() -> None:
    from transformers import BertForMaskedLM

    model = BertForMaskedLM(tiny_model("bert").config)
    assert type(pe.PretrainedWordEncoder(model, TOKENIZER).model).__name__ == "BertModel"


def test_scratch() -> None:
    ours = pe.PretrainedWordEncoder.scratch(TOKENIZER, num_layers=2, hidden_size=12, num_heads=3)
    assert ours.embedding_dim == 12
    assert ours.model.config.num_hidden_layers == 2
    assert ours.model.get_input_embeddings().num_embeddings == len(TOKENIZER)
    assert ours(ours.encode(SENTENCES)[0]).shape == (3, 4, 12)


@own_words
def test_bad_input() -> None:
    def read(mask: torch.Tensor, index: list[int]) -> torch.Tensor:
        return encoder()(Pieces(torch.ones(1, 2).long(), mask, torch.tensor([index])))

    whole, pieces = pe.PretrainedWordEncoder, encoder().encode(SENTENCES)[0]
    refused(ValueError, r"^pooling must be one of", encoder, pooling="median")
    refused(
        ValueError,
        r"^freeze must be one of 'none', 'embeddings', 'all', got",
        encoder,
        freeze="some",
    )
    refused(ValueError, r"^overflow must be one of", encoder, overflow="wrap")
    refused(TypeError, r"^model must be an encoder of transformers", whole, nn.Linear(2, 2))
    refused(
        TypeError,
        r"^model must be an encoder of transformers, got BartModel, which decodes too",
        whole,
        bart(),
    )
    refused(
        ValueError,
        r"^num_layers must be a positive integer, got 0$",
        whole.scratch,
        TOKENIZER,
        num_layers=0,
    )
    refused(
        TypeError,
        r"^sentences\[0\] must be a list of words, got NoneType$",
        encoder().encode,
        [None],
    )
    bare = whole(tiny_model("bert"))
    refused(
        TypeError,
        r"^tokenizer must be given to cut words into pieces, got None$",
        bare.encode,
        [["me"]],
    )
    deep = encoder(fusion=pe.DLFA(8, 9))
    refused(ValueError, r"^lower_layer must be one of the 4 hidden states .*, got 9$", deep, pieces)
    refused(
        TypeError,
        r"^piece_mask must be bool \(True = valid\), got torch.float32$",
        read,
        torch.ones(1, 2),
        [0, 1],
    )
    refused(
        ValueError,
        r"^word_index must count words 0, 1, 2",
        read,
        torch.ones(1, 2).bool(),
        [0, 2],
    )


def test_words_cut_away_at_the_end_are_tagged_all_the_same() -> None:
    """They have no pieces, so the pieces alone do not tell how many words there are."""
    encoder = pe.PretrainedWordEncoder(
        tiny_model("bert", max_position_embeddings=6), TOKENIZER, overflow="truncate"
    )
    tagger = pe.SequenceTagger(encoder, ["X", "Y"])
    sentences = [["me"] * 9, ["gusta"]]
    assert [len(tags) for tags in tagger.predict(sentences)] == [9, 1]
    inputs, mask = tagger.encode(sentences)
    assert tagger(inputs, tags=torch.zeros(2, 9, dtype=torch.int64), mask=mask).isfinite()


def words_alone() -> PreTrainedTokenizerFast:
    vocabulary = {w: i for i, w in enumerate(["[PAD]", "[UNK]", "me", "gusta", "la", "song"])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="[PAD]", unk_token="[UNK]")


SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 16}
SMALL |= {"vocab_size": 6, "max_position_embeddings": 128, "pad_token_id": 0}
PADDING = {
    "Bert": (False, {"num_attention_heads": 2}),
    "MobileBert": (
        True,
        {"embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16,
         "num_feedforward_networks": 1, "num_attention_heads": 2},
    ),
    "ConvBert": (
        True,
        {"embedding_size": 16, "conv_kernel_size": 5, "head_ratio": 1, "num_attention_heads": 2},
    ),
    "FNet": (True, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", PADDING)
def test_padding_reaches_no_word(name: str) -> None:
    """Some models let padding in although it is masked; their rows run one at a time."""
    reaches, options = PADDING[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SMALL, **options)
    model = getattr(transformers, f"{name}Model")(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.3)
    encoder = pe.PretrainedWordEncoder(model, words_alone(), fusion=pe.ScalarMix(3)).eval()
    assert encoder._padding_counts == reaches
    rows = [["me", "song"], ["gusta"] * 9, []]
    together = encoder(encoder.pieces(rows))
    for i, row in enumerate(rows):
        alone = encoder(encoder.pieces([row]))[0] if row else together[2, :0]
        torch.testing.assert_close(together[i, : len(row)], alone, atol=1e-5, rtol=1e-5)
        assert (together[i, len(row) :] == 0).all()
    together.sum().backward()


CAUSAL = {
    "Llama": ({"num_key_value_heads": 2}, True),
    "Llama both ways": ({"num_key_value_heads": 2, "is_causal": False}, False),
    "CLIPText": ({"eos_token_id": 3, "bos_token_id": 2}, True),
    "Bert": ({}, False),
}


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_is_what_a_model_does(name: str) -> None:
    options, causal = CAUSAL[name]
    kind = name.partition(" ")[0]
    options = {**SMALL, "num_attention_heads": 2, **options}
    model = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**options))
    encoder = pe.PretrainedWordEncoder(model)
    assert (encoder.is_causal, encoder.pooling) == (causal, "last" if causal else "first")


def test_the_space_before_a_word_does_not_stand_for_it() -> None:
    config = transformers.T5Config(
        vocab_size=384, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2
    )
    model = transformers.T5EncoderModel(config)
    encoder = pe.PretrainedWordEncoder(
        model, transformers.ByT5Tokenizer(), fusion=pe.LayerAverage([0])
    ).eval()
    words = ["me", "gusta", "song"]
    vectors = encoder(encoder.pieces([words]))[0]
    table = model.get_input_embeddings().weight
    torch.testing.assert_close(vectors, table[[ord(word[0]) + 3 for word in words]])


def test_the_rules_of_a_folder_are_those_of_its_file(tmp_path) -> None:
    """A named class makes rules of its own when it is opened."""
    slow = transformers.RobertaTokenizer().train_new_from_iterator(["me gusta la song"] * 20, 300)
    slow.save_pretrained(tmp_path)
    core = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    core.normalizer = normalizers.Lowercase()
    core.save(str(tmp_path / "tokenizer.json"))
    sizes = {**SMALL, "vocab_size": len(slow), "num_attention_heads": 2}
    transformers.RobertaModel(transformers.RobertaConfig(**sizes)).save_pretrained(tmp_path)
    encoder = pe.PretrainedWordEncoder(tmp_path)
    encoder.save_pretrained(tmp_path / "saved")
    for opened in (encoder, pe.PretrainedWordEncoder.from_pretrained(tmp_path / "saved")):
        found = opened.pieces([["gusta", "ME"]]).piece_ids[0].tolist()
        assert found == core.encode(" gusta ME").ids


def test_no_file_elsewhere_is_followed(tmp_path) -> None:
    encoder().save_pretrained(tmp_path)
    path = only(tmp_path, "tokenizer-*") / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps({**settings, "fast_tokenizer_files": ["/etc/tokenizer.json"]}))
    reseal(tmp_path)
    with pytest.raises(
        ValueError, match=r"must name no file elsewhere, got \['fast_tokenizer_files"
    ):
        pe.PretrainedWordEncoder.from_pretrained(tmp_path)
