"""The library's models in the training loops of other packages."""

import pytest
import torch
from cases import tagger
from toys import TAGS, ToyWordEncoder, toy_corpus

import polyembed as pe
from polyembed.tagging import to_device
from polyembed.training import DataCollatorForWords

pytest.importorskip("accelerate", reason="Trainer needs polyembed[train]")
ROWS = [{"words": list(item.words), "tags": list(item.tags)} for item in toy_corpus(2)]


def models() -> dict[str, pe.SequenceTagger]:
    torch.manual_seed(0)
    return {"ids": tagger()(), "pieces": pe.TokenClassifier(ToyWordEncoder(5), TAGS, dropout=0.0)}


@pytest.mark.parametrize("name", ["ids", "pieces"])
def test_batches_are_those_of_collate(name):
    model = models()[name]
    found, expected = DataCollatorForWords(model)(ROWS), model.collate(toy_corpus(2))
    assert found.keys() == expected.keys()
    assert torch.equal(model(**found), model(**expected))


@pytest.mark.parametrize("name", ["ids", "pieces"])
def test_transformers_trainer_is_the_plain_loop(name, tmp_path):
    """The trainer overrides the two methods that the documentation shows."""
    from transformers import Trainer, TrainingArguments

    class WordTrainer(Trainer):
        def _prepare_inputs(self, inputs):
            return to_device(inputs, self.args.device)

        def compute_loss(self, model, inputs, **_):
            return model(**inputs)

    model, plain = models()[name].train(), models()[name].train()
    arguments = TrainingArguments(
        str(tmp_path), max_steps=3, per_device_train_batch_size=len(ROWS), remove_unused_columns=False,
        max_grad_norm=0.0, lr_scheduler_type="constant", optim="sgd", learning_rate=0.1, report_to=[],
        use_cpu=True, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    collate = DataCollatorForWords(model)
    WordTrainer(model, arguments, train_dataset=ROWS, data_collator=collate).train()
    optimizer = torch.optim.SGD([p for p in plain.parameters() if p.requires_grad], lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        plain(**plain.collate(toy_corpus(2))).backward()
        optimizer.step()
    torch.testing.assert_close(model.state_dict(), plain.state_dict(), rtol=1e-4, atol=1e-5)
