import warnings
from typing import Any

import pytest
import torch
import transformers
from checks import refused
from torch import Tensor, nn

from polyembed import transformed_output
from polyembed.transfer import encoder_layer

SIZES = {
    "vocab_size": 31,
    "hidden_size": 12,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 17,
}


HEAD_SIZES = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SMALL = {"vocab_size": 31, "dim": 12, "n_layers": 3, "n_heads": 2, "hidden_dim": 17}
MODELS = {
    "BertForTokenClassification": SIZES,
    "XLMForTokenClassification": {"vocab_size": 31, "emb_dim": 12, "n_layers": 3, "n_heads": 2},
    "DistilBertForTokenClassification": SMALL,
    "ModernBertForTokenClassification": {**SIZES, **HEAD_SIZES},
    "ElectraModel": {**SIZES, "embedding_size": 7},
    "MegatronBertModel": SIZES,
    "PhiModel": {**SIZES, "num_attention_heads": 3},
    "DebertaV2ForTokenClassification": {
        **SIZES,
        "relative_attention": True,
        "norm_rel_ebd": "layer_norm",
    },
    "GPT2ForTokenClassification": {
        "vocab_size": 31,
        "n_embd": 12,
        "n_layer": 3,
        "n_head": 2,
        **HEAD_SIZES,
    },
    "Gemma3TextModel": {**SIZES, **HEAD_SIZES, "num_key_value_heads": 1, "head_dim": 6},
}


def make(name: str) -> nn.Module:
    cls = getattr(transformers, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cls(cls.config_class(**MODELS[name])).eval()


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head, self.encoder = nn.Linear(12, 3), make("BertForTokenClassification")

    def forward(self, **batch: Any) -> Any:
        return self.encoder(**batch)


@pytest.mark.parametrize("name", [*MODELS, "inside another"])
def test_the_number_is_that_of_hidden_states(name):
    """The function gets `hidden_states[number]`, and its result replaces this tensor."""
    model = Classifier() if name == "inside another" else make(name)
    ids = torch.randint(5, 31, (2, 7))
    with torch.no_grad():
        plain = model(input_ids=ids, output_hidden_states=True)
        # some hooks are from transformers
        own_hooks = [len(module._forward_hooks) for module in model.modules()]
        assert len(plain.hidden_states) == 4
        for number, expected in enumerate(plain.hidden_states):
            seen: list[Tensor] = []
            watch = lambda h, seen=seen: seen.append(h.clone()) or h.flip(-1)  # noqa: E731
            with transformed_output(encoder_layer(model, number), watch):
                changed = model(input_ids=ids, output_hidden_states=True)
            assert torch.equal(changed.hidden_states[number], expected.flip(-1)), number
            assert torch.equal(seen[0], expected), number
            assert sum(torch.equal(seen[0], state) for state in plain.hidden_states) == 1
            assert (changed[0] - plain[0]).abs().max() > 1e-4
    assert [len(module._forward_hooks) for module in model.modules()] == own_hooks


@pytest.mark.parametrize(
    ("build", "layer", "message"),
    [
        (lambda: make("ElectraModel"), 4, r"layer must be between 0 \(embeddings\) and 3, got 4"),
        (lambda: nn.Linear(2, 2), 0, "model must hold one transformers encoder .*, got 0 in Linear"),
        (
            lambda: transformers.AlbertModel(transformers.AlbertConfig(**SIZES, embedding_size=12)), 1,
            r"model must have 3 layers in one nn.ModuleList \(else give the module\), got AlbertModel",
        ),
    ],
)  # fmt: skip
def test_bad_input(build, layer, message):
    refused(ValueError, f"^{message}$", encoder_layer, build(), layer)
