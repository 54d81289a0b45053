import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from polyembed import transformed_output
from polyembed.transfer import encoder_layer

SIZES = {"vocab_size": 31, "hidden_size": 12, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 17}


def bert() -> nn.Module:
    from transformers import BertConfig, BertForTokenClassification

    return BertForTokenClassification(BertConfig(**SIZES))


def xlm_r() -> nn.Module:
    from transformers import XLMRobertaConfig, XLMRobertaForSequenceClassification

    return XLMRobertaForSequenceClassification(XLMRobertaConfig(**SIZES))


def xlm() -> nn.Module:
    from transformers import XLMConfig, XLMForTokenClassification

    return XLMForTokenClassification(XLMConfig(vocab_size=31, emb_dim=12, n_layers=3, n_heads=2))


def distilbert() -> nn.Module:
    from transformers import DistilBertConfig, DistilBertForTokenClassification

    config = DistilBertConfig(vocab_size=31, dim=12, n_layers=3, n_heads=2, hidden_dim=17)
    return DistilBertForTokenClassification(config)


def modernbert() -> nn.Module:
    from transformers import ModernBertConfig, ModernBertForTokenClassification

    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
    return ModernBertForTokenClassification(ModernBertConfig(**SIZES, **tokens))


def electra() -> nn.Module:
    from transformers import ElectraConfig, ElectraModel

    return ElectraModel(ElectraConfig(**SIZES, embedding_size=7))


def inside_another() -> nn.Module:
    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.encoder = nn.Linear(12, 3), bert()

        def forward(self, **batch: Any) -> Any:
            return self.encoder(**batch)

    return Classifier()


@pytest.mark.parametrize("make", [bert, xlm_r, xlm, distilbert, modernbert, electra, inside_another])
def test_the_number_is_that_of_hidden_states(make: Callable[[], nn.Module]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make()
    model.eval()
    ids = torch.randint(5, 31, (2, 7))
    with torch.no_grad():
        states = model(input_ids=ids, output_hidden_states=True).hidden_states
        assert len(states) == 4
        for number, expected in enumerate(states):
            seen: list[Tensor] = []

            def watch(h: Tensor, seen: list[Tensor] = seen) -> Tensor:
                seen.append(h.clone())
                return h

            with transformed_output(encoder_layer(model, number), watch):
                model(input_ids=ids)
            assert torch.equal(seen[0], expected), number
            others = [state for other, state in enumerate(states) if other != number]
            assert not any(torch.equal(seen[0], state) for state in others)


def test_bad_input() -> None:
    model = bert()
    with pytest.raises(ValueError, match=r"^layer must be between 0 \(embeddings\) and 3, got 4$"):
        encoder_layer(model, 4)
    with pytest.raises(ValueError, match=r"^layer must be between 0 \(embeddings\) and 3, got -1$"):
        encoder_layer(model, -1)
    with pytest.raises(TypeError, match=r"^layer must be an int or a module, got str$"):
        encoder_layer(model, "embeddings")
    rule = r"^model must hold one transformers encoder \(else give the layer's module\), "
    with pytest.raises(ValueError, match=rule + r"got 0 in Linear$"):
        encoder_layer(nn.Linear(2, 2), 0)
    with pytest.raises(ValueError, match=rule + r"got 2 in ModuleList$"):
        encoder_layer(nn.ModuleList([bert(), bert()]), 0)


def test_refuses_shared_layers() -> None:
    from transformers import AlbertConfig, AlbertModel

    model = AlbertModel(AlbertConfig(**SIZES, embedding_size=12))
    rule = r"^model must have 3 layers in one nn.ModuleList \(else give the module\), got AlbertModel$"
    with pytest.raises(ValueError, match=rule):
        encoder_layer(model, 1)
