"""LoRA of peft inside an encoder: it reads as peft's own model, trains alone, is saved, and MetaXL goes through it."""

import copy
import json
import sys
from pathlib import Path

import pytest
import torch
from checks import refused
from saving.folders import reseal
from tiny_models import SIZES, tiny_model, word_piece_tokenizer
from torch import nn
from toys import TAGS, toy_corpus

import polyembed as pe
from polyembed.transfer.layers import encoder_layer

peft = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings(
    "ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"
)

WORDS = [["me", "gusta", "la", "cancion"], ["songs", "a"]]
RANKS = {
    "rank_pattern": {"layer.1.attention.self.query": 3},
    "alpha_pattern": {"layer.2.attention.self.value": 7},
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def lora(model: nn.Module | None = None, **options: object):
    """A PeftModel with adapters that do something: B does not start at zero."""
    model = tiny_model("bert", **NO_DROPOUT) if model is None else model
    settings = {"r": 2, "target_modules": ["query", "value"], "init_lora_weights": False}
    return peft.get_peft_model(model, peft.LoraConfig(**{**settings, **options}))


def encoder(model: nn.Module | None = None, **options: object) -> pe.PretrainedWordEncoder:
    return pe.PretrainedWordEncoder(
        lora() if model is None else model, word_piece_tokenizer(), **options
    )


def trained(module: nn.Module) -> set[str]:
    return {name for name, parameter in module.named_parameters() if parameter.requires_grad}


def test_reads_as_peft_does() -> None:
    model = lora().eval()
    words = encoder(model, fusion=pe.DLFA(hidden_size=8, lower_layer=1)).eval()
    pieces = words.pieces(WORDS)
    with torch.no_grad():
        theirs = model(
            pieces.piece_ids, attention_mask=pieces.piece_mask.long(), output_hidden_states=True
        )
        ours = words.hidden_states(pieces)
        plain = (
            encoder(tiny_model("bert", **NO_DROPOUT), fusion=pe.ScalarMix(4))
            .eval()
            .hidden_states(pieces)
        )
        fused = words(pieces)
    assert len(ours) == 4
    for one, other in zip(ours, theirs.hidden_states, strict=True):
        torch.testing.assert_close(one, other)
    assert not torch.allclose(ours[-1], plain[-1])
    with model.disable_adapter(), torch.no_grad():
        assert not torch.allclose(words(pieces), fused), "the fusion sees the adapters"
    assert type(words.model) is type(
        tiny_model("bert")
    )  # its signature and layers are found as ever


def test_a_head_is_left_out() -> None:
    from transformers import BertConfig, BertForTokenClassification

    model = BertForTokenClassification(BertConfig(**SIZES))
    words = encoder(lora(model, task_type="TOKEN_CLS"))
    assert words.model is model.bert
    assert words(words.pieces(WORDS)).shape == (2, 4, 8)
    assert trained(words)
    assert all("lora_" in name for name in trained(words))


def test_adapters_that_were_added_to_the_model_itself() -> None:
    model = tiny_model("bert")
    # what transformers' own add_adapter calls; that one refuses a peft older than the newest
    peft.inject_adapter_in_model(peft.LoraConfig(r=2, target_modules=["query"]), model)
    assert list(encoder(model).adapters) == ["default"]
    assert encoder(tiny_model("bert")).adapters == {}


def test_trains_the_adapters_alone() -> None:
    tagger = pe.TokenClassifier(encoder(fusion=pe.DLFA(hidden_size=8, lower_layer=1)), TAGS)
    rows = toy_corpus(2)
    before = copy.deepcopy(tagger.state_dict())
    pe.fit(tagger, rows, rows, pe.FitOptions(num_train_epochs=1, batch_size=6), progress=False)
    moved = {
        name for name, value in tagger.state_dict().items() if not torch.equal(value, before[name])
    }
    expected = {name for name in before if "lora_" in name or "fusion" in name or "decoder" in name}
    assert moved <= expected
    assert {name for name in moved if "lora_" in name}
    assert {name for name in moved if "fusion" in name} == {
        name for name in expected if "fusion" in name
    }


def ia3() -> nn.Module:
    config = peft.IA3Config(target_modules=["query"], feedforward_modules=[])
    model = peft.get_peft_model(tiny_model("bert", **NO_DROPOUT), config)
    for name, value in model.named_parameters():
        if "ia3_" in name:
            value.data.add_(torch.rand_like(value))
    return model


def with_head() -> nn.Module:
    from transformers import BertConfig, BertForTokenClassification

    model = BertForTokenClassification(BertConfig(**SIZES))
    return lora(model, target_modules=r"bert\.encoder\.layer\.[01]\..*query")


@pytest.mark.parametrize(
    "build",
    [
        lambda: lora(**RANKS),
        lambda: lora(use_rslora=True, use_dora=True, layers_to_transform=[1]),
        lambda: lora(target_modules="all-linear"),
        ia3,
        with_head,
    ],
)
def test_saved_and_opened(build, tmp_path: Path) -> None:
    tagger = pe.TokenClassifier(encoder(build()), TAGS).eval()
    tagger.save_pretrained(tmp_path / "tagger")
    again = pe.TokenClassifier.from_pretrained(tmp_path / "tagger")
    inputs = tagger.encode(WORDS)
    assert torch.equal(again.emissions(*inputs), tagger.emissions(*inputs))
    assert again.state_dict().keys() == tagger.state_dict().keys()
    assert trained(again) == trained(tagger)
    again.save_pretrained(tmp_path / "tagger")  # what was opened can be saved
    again = pe.TokenClassifier.from_pretrained(tmp_path / "tagger")
    assert torch.equal(again.emissions(*inputs), tagger.emissions(*inputs))


def test_what_cannot_be_built_again_is_not_saved(tmp_path: Path) -> None:
    two = lora()
    two.add_adapter("other", peft.LoraConfig(r=2, target_modules=["query"]))
    merged = lora()
    merged.merge_adapter()
    for model, message in (
        (two, r"the adapters must be one to be saved .*, got \['default', 'other'\]"),
        (merged, "the adapter must not be merged into the weights to be saved"),
        (lora(modules_to_save=["key"]), r"the adapter must change layers alone to be saved"),
        (lora(trainable_token_indices=[1]), r"the adapter must change layers alone to be saved"),
    ):
        refused(TypeError, message, encoder(model).save_pretrained, tmp_path / "encoder")
    assert not (tmp_path / "encoder" / "config.json").exists()
    whole = encoder(lora().merge_and_unload())  # the recipe
    whole.save_pretrained(tmp_path / "encoder")
    words = pe.PretrainedWordEncoder.from_pretrained(tmp_path / "encoder")
    assert torch.equal(words(words.pieces(WORDS)), whole.eval()(whole.pieces(WORDS)))


def test_prompts_are_refused() -> None:
    config = peft.PromptTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=3)
    with pytest.raises(
        TypeError,
        match=r"^model must have adapters inside its layers, as LoRA, got PromptTuningConfig",
    ):
        encoder(peft.get_peft_model(tiny_model("bert"), config))


def test_folders_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder().save_pretrained(tmp_path)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(
        ImportError,
        match=r"an encoder with an adapter must find the package 'peft', got .* pip install peft",
    ):
        pe.PretrainedWordEncoder.from_pretrained(tmp_path)
    monkeypatch.undo()
    [path] = tmp_path.glob("adapter-*/adapter_config.json")
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "megatron_config": {}, "megatron_core": "antigravity"}))
    reseal(tmp_path)
    with pytest.raises(ValueError, match=r"the adapter must import no package by name, got \{\}"):
        pe.PretrainedWordEncoder.from_pretrained(tmp_path)


# --- MetaXL
# ------------------------------------------------------------------------------------------------------


def test_layers_by_number_inside_peft() -> None:
    from transformers import BertConfig, BertForSequenceClassification

    model = lora(BertForSequenceClassification(BertConfig(**SIZES)))
    assert encoder_layer(model, 2) is model.base_model.model.bert.encoder.layer[1]
    assert encoder_layer(pe.TokenClassifier(encoder(), TAGS), 0)


def step(method: str) -> tuple[dict[str, torch.Tensor], set[str], set[str]]:
    """Do one step with the adapters alone; give the transform's change, and what moved and what could have."""
    torch.manual_seed(0)
    tagger = pe.TokenClassifier(encoder(), TAGS, dropout=0.0).double()
    rtn = pe.RepresentationTransformationNetwork(8, bottleneck=3).double()
    adapters = [p for name, p in tagger.named_parameters() if "lora_" in name]
    before = [copy.deepcopy(module.state_dict()) for module in (tagger, rtn)]
    rows = toy_corpus(2)
    found = pe.metaxl_step(
        tagger, rtn, 1, [tagger.collate(rows[:3])], [tagger.collate(rows[3:5])],
        optimizer=torch.optim.SGD(adapters, 0.5), meta_optimizer=torch.optim.SGD(rtn.parameters(), 1.0),
        target_support=[tagger.collate(rows[5:7])], loss=lambda model, batch: model(**batch), method=method,
    )  # fmt: skip
    assert found.meta_norm > 1e-7
    moved = {
        name
        for name, value in tagger.state_dict().items()
        if not torch.equal(value, before[0][name])
    }
    change = {name: value - before[1][name] for name, value in rtn.state_dict().items()}
    return change, moved, {name for name, _ in tagger.named_parameters() if "lora_" in name}


def test_a_meta_step_over_adapters() -> None:
    exact, moved, adapters = step("reverse_over_reverse")
    assert moved
    assert moved <= adapters
    change, again, _ = step("forward_over_reverse")
    assert again == moved
    size = torch.cat([value.flatten() for value in exact.values()]).norm()
    off = torch.cat([(change[name] - value).flatten() for name, value in exact.items()]).norm()
    assert off / size < 1e-9
