"""LoRA of peft inside an encoder: the outputs of peft, training, saving, and MetaXL steps."""

import copy
import json

import pytest
import torch
from checks import refused
from saving.folders import reseal
from tiny_models import SIZES, tiny_model, word_piece_tokenizer
from torch import nn
from toys import TAGS, toy_corpus

import polyembed as pe

peft = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings(
    "ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"
)

WORDS = [["me", "gusta", "la", "cancion"], ["songs", "a"]]
ROWS = toy_corpus(2)
RANKS = {
    "rank_pattern": {"layer.1.attention.self.query": 3},
    "alpha_pattern": {"layer.2.attention.self.value": 7},
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def lora(model: nn.Module | None = None, **options: object):
    """Return a PeftModel whose adapters have an effect, because B does not start at zero."""
    model = tiny_model("bert", **NO_DROPOUT) if model is None else model
    settings = {"r": 2, "target_modules": ["query", "value"], "init_lora_weights": False}
    return peft.get_peft_model(model, peft.LoraConfig(**{**settings, **options}))


def encoder(model: nn.Module | None = None, **options: object) -> pe.PretrainedWordEncoder:
    return pe.PretrainedWordEncoder(
        lora() if model is None else model, word_piece_tokenizer(), **options
    )


def with_head() -> nn.Module:
    from transformers import BertConfig, BertForTokenClassification

    return BertForTokenClassification(BertConfig(**SIZES))


def trained(module: nn.Module) -> set[str]:
    return {name for name, parameter in module.named_parameters() if parameter.requires_grad}


def test_reads_as_peft_does():
    model = lora().eval()
    words = encoder(model, fusion=pe.ScalarMix(4)).eval()
    pieces = words.pieces(WORDS)
    inputs = {"input_ids": pieces.piece_ids, "attention_mask": pieces.piece_mask.long()}
    theirs = model(**inputs, output_hidden_states=True).hidden_states
    for one, other in zip(words.hidden_states(pieces), theirs, strict=True):
        torch.testing.assert_close(one, other)
    with model.disable_adapter():
        assert not torch.allclose(words.hidden_states(pieces)[-1], theirs[-1])


def ia3() -> nn.Module:
    names = ["bert.encoder.layer.1.attention.self.query", "bert.encoder.layer.1.output.dense"]
    config = peft.IA3Config(target_modules=names, feedforward_modules=names[1:])
    model = peft.get_peft_model(with_head(), config)
    for name, value in model.named_parameters():
        if "ia3_" in name:
            value.data.add_(torch.rand_like(value))
    return model


def loha() -> nn.Module:
    patterns = {"target_modules": r"bert\..*query", "alpha_pattern": {r".*1\..*query": 70}}
    return peft.get_peft_model(with_head(), peft.LoHaConfig(**patterns, init_weights=False))


def experts() -> nn.Module:
    """Return a model with an adapter on parameters outside linear layers."""
    from transformers import Qwen3MoeConfig, Qwen3MoeModel

    sizes = dict.fromkeys(("num_experts_per_tok", "num_key_value_heads"), 2)
    config = Qwen3MoeConfig(**SIZES, **sizes, head_dim=4, num_experts=4, moe_intermediate_size=8)
    names = {"target_modules": ["q_proj"], "target_parameters": ["mlp.experts.gate_up_proj"]}
    return lora(Qwen3MoeModel(config), **names)


@pytest.mark.parametrize(
    "build",
    [
        experts,
        lambda: lora(**RANKS),
        lambda: lora(use_rslora=True, use_dora=True, layers_to_transform=[1]),
        lambda: lora(target_modules="all-linear"),
        lambda: lora(init_lora_weights="pissa"),
        ia3,
        loha,
        lambda: lora(with_head(), target_modules=r"bert\.encoder\.layer\.[01]\..*query"),
        lambda: lora(with_head(), task_type="TOKEN_CLS"),
        lambda: lora(
            with_head(),
            target_modules="all-linear",
            alpha_pattern={"bert.encoder.layer.1.attention.self.query": 70},
            bias="all",
        ),
    ],
)
def test_saved_and_opened(build, tmp_path):
    tagger = pe.TokenClassifier(encoder(build()), TAGS).eval()
    tagger.save_pretrained(tmp_path)
    again = pe.TokenClassifier.from_pretrained(tmp_path)
    inputs = tagger.encode(WORDS)
    assert torch.equal(again.emissions(*inputs), tagger.emissions(*inputs))
    assert trained(again) == trained(tagger)


def test_adapters_beside_a_model_in_half_precision_stay_in_float32(tmp_path):
    words = encoder(lora(tiny_model("bert").bfloat16()))
    words.save_pretrained(tmp_path)
    again = pe.PretrainedWordEncoder.from_pretrained(tmp_path)
    torch.testing.assert_close(again.state_dict(), words.state_dict(), rtol=0, atol=0)


def test_a_meta_step_over_adapters():
    tagger = pe.TokenClassifier(encoder(), TAGS, dropout=0.0).double()
    rtn = pe.RepresentationTransformationNetwork(8, bottleneck=3).double()
    adapters = [p for name, p in tagger.named_parameters() if "lora_" in name]
    before, start = copy.deepcopy(tagger.state_dict()), copy.deepcopy(rtn.state_dict())
    batches = [tagger.collate(rows) for rows in (ROWS[:3], ROWS[3:5], ROWS[5:7])]
    pe.metaxl_step(
        tagger, rtn, 1, batches[:1], batches[1:2], target_support=batches[2:],
        optimizer=torch.optim.SGD(adapters, 0.5), loss=lambda model, batch: model(**batch),
        meta_optimizer=torch.optim.SGD(rtn.parameters(), 1.0),
    )  # fmt: skip
    moved = [k for k, x in tagger.state_dict().items() if not torch.equal(x, before[k])]
    assert moved
    assert all("lora_" in name for name in moved)
    assert any(not torch.equal(x, start[name]) for name, x in rtn.state_dict().items())


def two_adapters() -> nn.Module:
    model = lora()
    model.add_adapter("other", peft.LoraConfig(r=2, target_modules=["query"]))
    return model


def ranked() -> nn.Module:
    config = peft.AdaLoraConfig(target_modules=["query"], total_step=9)
    return peft.get_peft_model(tiny_model("bert"), config)


def prompts() -> nn.Module:
    config = peft.PromptTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=3)
    return peft.get_peft_model(tiny_model("bert"), config)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (two_adapters, r"the adapters must be one to be saved .*, got \['default', 'other'\]"),
        (lambda: lora(modules_to_save=["key"]), "the adapter must change layers alone"),
        (lambda: lora(modules_to_save=["pooler"]), "the adapter must change .*'pooler"),
        (ranked, "the adapter must change layers alone .* own .*, got 9 of 12 weights"),
        (prompts, "^model must have adapters inside its layers, as LoRA, got PromptTuningConfig"),
    ],
)
def test_what_cannot_be_built_again_is_not_saved(build, message, tmp_path):
    refused(TypeError, message, lambda: encoder(build()).save_pretrained(tmp_path))
    assert not (tmp_path / "config.json").exists()


def test_an_adapter_that_came_or_went_after_the_encoder_was_built(tmp_path):
    model = lora()
    late, gone = encoder(tiny_model("bert")), encoder(model)
    peft.inject_adapter_in_model(peft.LoraConfig(target_modules=["query"]), late.model)
    model.merge_and_unload()
    message = "^model must have the weights of its configuration to be saved, without adapters"
    refused(ValueError, message, late.save_pretrained, tmp_path)
    refused(TypeError, "adapter must .*, got 0 of 0 weights$", gone.save_pretrained, tmp_path)


def test_a_folder_that_names_a_package_is_refused(tmp_path):
    encoder().save_pretrained(tmp_path)
    [path] = tmp_path.glob("adapter-*/adapter_config.json")
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "megatron_config": {}, "megatron_core": "antigravity"}))
    reseal(tmp_path)
    message = r"the adapter must import no package by name, got \{\}"
    refused(ValueError, message, pe.PretrainedWordEncoder.from_pretrained, tmp_path)
