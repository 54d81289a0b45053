"""The library's models in the Trainer of transformers, in Accelerate, in Lightning Fabric and in a plain loop."""

import importlib
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny_models import tiny_model, word_piece_tokenizer
from tokenizers import processors
from torch import nn
from toys import (
    SENTENCES,
    TAGS,
    WORDS,
    ToyVectors,
    ToyWordEncoder,
    toy_corpus,
    toy_lexicon,
    toy_table,
)

import polyembed as pe
from polyembed.data import load_sample
from polyembed.metrics import accuracy, entity_f1
from polyembed.training import DataCollatorForWords, trainer_metrics
from polyembed.vectors import FastTextVectors

pytest.importorskip("accelerate")
pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning")

ROOT = Path(__file__).resolve().parents[2]
CORPUS = toy_corpus(4)
LABELLED = [
    SimpleNamespace(words=one.words, label="+" if len(one.words) > 2 else "-") for one in CORPUS
]
PAIRS = [SimpleNamespace(first=one.words, second=CORPUS[0].words, label="+") for one in CORPUS]


def shared_and_frozen() -> nn.Module:
    """A table that stands in two places, and one that never trains."""
    lexicon, shared = toy_lexicon(), toy_table(5)
    return pe.MetaEmbedding.concat(
        [shared, pe.SourceEmbedding(ToyVectors(3), lexicon), pe.UniqueWords(shared)]
    )


def tagger_of_words() -> pe.SequenceTagger:
    encoder = pe.LSTMSequenceEncoder(13, hidden_size=7, dropout=0.0)
    return pe.SequenceTagger(shared_and_frozen(), TAGS, encoder=encoder)


def encoder_of_pieces() -> pe.PretrainedWordEncoder:
    """BERT's kind: a pair's texts have types of their own."""
    tokenizer = word_piece_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    model = tiny_model("bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    with torch.no_grad():
        model.embeddings.token_type_embeddings.weight.normal_(std=3)
    return pe.PretrainedWordEncoder(model, tokenizer)


KINDS = {
    "tagger": (tagger_of_words, CORPUS),
    "ensemble of words and pieces": (
        lambda: pe.VotingEnsemble([tagger_of_words(), pe.SequenceTagger(ToyWordEncoder(5), TAGS)]),
        CORPUS,
    ),
    "texts": (
        lambda: pe.SequenceClassifier(
            shared_and_frozen(), ["-", "+"], pooling="mean", dropout=0.0
        ),
        LABELLED,
    ),
    "pairs": (
        lambda: pe.PairClassifier(toy_table(5), ["-", "+"], pooling="max", dropout=0.0),
        PAIRS,
    ),
    "words and pieces": (
        lambda: pe.SequenceTagger(pe.MetaEmbedding.concat([toy_table(5), encoder_of_pieces()]), TAGS),
        CORPUS,
    ),
    "pairs of pieces": (lambda: pe.PairClassifier(encoder_of_pieces(), ["-", "+"], dropout=0.0), PAIRS),
    "pairs, each read by itself": (
        lambda: pe.PairClassifier(
            encoder_of_pieces(), ["-", "+"], encoder=pe.LSTMSequenceEncoder(8, hidden_size=5, dropout=0.0),
            pooling="mean", dropout=0.0,
        ),
        PAIRS,
    ),
}  # fmt: skip


def leaves(batch: object) -> set[type]:
    """The types inside nested dicts, of which a trainer moves tensors."""
    return set().union(*map(leaves, batch.values())) if isinstance(batch, dict) else {type(batch)}


@pytest.mark.parametrize("kind", KINDS)
def test_wrapped_is_the_model_itself(kind: str) -> None:
    build, rows = KINDS[kind]
    model = build()
    wrapped, rows = pe.wrap_for_trainer(model), rows[:5]
    batch = DataCollatorForWords(wrapped)(rows)
    assert leaves(batch) <= {torch.Tensor, int, type(None)}
    arguments = model.collate(rows)
    torch.testing.assert_close(wrapped.train()(**batch).loss, model(**arguments))
    assert "logits" not in wrapped(**batch)
    found = wrapped.eval()(**batch)
    torch.testing.assert_close(found.loss, model(**arguments))
    labels = arguments.pop("tags" if "tags" in arguments else "labels")
    assert torch.equal(batch["labels"], labels)
    assert torch.equal(found.logits, model.decode(**arguments))
    assert found.logits.shape == labels.shape
    spread = pe.wrap_for_trainer(model, predictions="probabilities").eval()(**batch).logits
    torch.testing.assert_close(spread, model.probabilities(**arguments))
    unlabelled = DataCollatorForWords(model)(
        [
            {
                name: getattr(row, name)
                for name in ("words", "first", "second")
                if hasattr(row, name)
            }
            for row in rows
        ]
    )
    assert "labels" not in unlabelled
    assert torch.equal(wrapped(**unlabelled).logits, found.logits)
    assert "loss" not in wrapped(**unlabelled)


def test_rows_may_be_mappings() -> None:
    tagger = tagger_of_words()
    collate = DataCollatorForWords(tagger)
    rows = [
        {"words": list(one.words), "tags": list(one.tags), "id": i}
        for i, one in enumerate(CORPUS[:3])
    ]
    assert all(
        torch.equal(value, collate(CORPUS[:3])[name]) for name, value in collate(rows).items()
    )


def test_wrong_rows_and_models() -> None:
    tagger = tagger_of_words()
    collate = DataCollatorForWords(tagger)
    rule = r"^rows\[1\] must have words \(a Trainer drops columns unless remove_unused_columns=False\), got"
    with pytest.raises(TypeError, match=rf"{rule} the keys \['id'\]$"):
        collate([CORPUS[0], {"id": 3}])
    with pytest.raises(TypeError, match=rf"{rule} list$"):
        collate([CORPUS[0], ["me"]])
    with pytest.raises(ValueError, match=r"^rows must all have tags, or none of them, got 1 of 2$"):
        collate([CORPUS[0], {"words": ["me"]}])
    with pytest.raises(ValueError, match=r"^tags\[0\]\[0\] must be one of"):
        collate([{"words": ["me"], "tags": ["B-XX"]}])
    for take in (pe.wrap_for_trainer, DataCollatorForWords, trainer_metrics):
        with pytest.raises(
            TypeError, match=r"^model must be a tagger or a classifier of this library, got Linear$"
        ):
            take(nn.Linear(3, 2))
    with pytest.raises(
        ValueError, match=r"^predictions must be one of 'decoded', 'probabilities', got 'logits'$"
    ):
        pe.wrap_for_trainer(tagger, predictions="logits")
    with pytest.raises(
        TypeError, match=r"^model must be a tagger or a classifier of this library, not wrapped"
    ):
        pe.fit(pe.wrap_for_trainer(tagger), CORPUS, CORPUS)


def test_metrics_count_words_alone() -> None:
    score = trainer_metrics(tagger_of_words(), ["f1", "accuracy", "macro_f1"])
    gold = np.array([[1, 2, 0, -100], [3, -100, -100, -100]])
    said = np.array([[1, 2, 0, 3], [0, 1, 2, -100]])
    names = [["B-ES", "I-ES", "O"], ["B-EN"]], [["B-ES", "I-ES", "O"], ["O"]]
    found = score(SimpleNamespace(predictions=said, label_ids=gold))
    assert found["f1"] == entity_f1(*names).f1 == pytest.approx(2 / 3)
    assert found["accuracy"] == accuracy(*names) == 0.75
    spread = np.eye(5)[np.maximum(said, 0)]
    assert score(SimpleNamespace(predictions=spread, label_ids=gold)) == found
    with pytest.raises(
        ValueError, match=r"^predictions must have the labels' shape \(2, 4\), got \(2, 3\)$"
    ):
        score(SimpleNamespace(predictions=said[:, :3], label_ids=gold))
    with pytest.raises(ValueError, match=r"^predictions must be a tag for each word .*, got -100$"):
        score(SimpleNamespace(predictions=np.full_like(gold, -100), label_ids=gold))
    with pytest.raises(
        ValueError, match=r"^metrics must be one of 'f1', 'accuracy', 'macro_f1', got 'recall'$"
    ):
        trainer_metrics(tagger_of_words(), ["recall"])
    texts = trainer_metrics(KINDS["texts"][0]())
    assert texts(SimpleNamespace(predictions=np.array([1, 0]), label_ids=np.array([1, 1]))) == {
        "accuracy": 0.5
    }


# --- the state
# ---------------------------------------------------------------------------------------------------


def test_the_state_has_each_tensor_once(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    tagger = tagger_of_words()
    with pytest.raises(RuntimeError, match="share memory"):  # what a trainer would meet
        save_file(tagger.state_dict(), tmp_path / "tied.safetensors")
    wrapped = pe.wrap_for_trainer(tagger)
    state = wrapped.state_dict()
    tagger.save_pretrained(tmp_path / "tagger")
    assert state.keys() == load_file(tmp_path / "tagger" / "model.safetensors").keys()
    save_file(state, tmp_path / "once.safetensors")
    other = pe.wrap_for_trainer(tagger_of_words())
    assert not torch.equal(other.model.decoder.linear.weight, tagger.decoder.linear.weight)
    assert not other.load_state_dict(
        load_file(tmp_path / "once.safetensors"), strict=True
    ).unexpected_keys
    for name, value in tagger.state_dict().items():
        assert torch.equal(value, other.model.state_dict()[name]), name
    shared = other.model.embedder.embedders
    assert shared[0].table.weight is shared[2].embedder.table.weight
    turned = tagger.decoder.linear.weight
    tagger.decoder.linear.weight = nn.Parameter(turned.detach().T.contiguous().T)
    assert wrapped.state_dict()["decoder.linear.weight"].is_contiguous()
    assert torch.equal(wrapped.state_dict()["decoder.linear.weight"], turned)
    outer = nn.Sequential(wrapped)  # as DistributedDataParallel names it, under a prefix
    outer.load_state_dict(outer.state_dict(), strict=True)
    assert {name.partition(".")[2] for name in outer.state_dict()} == set(state)
    with pytest.raises(RuntimeError, match="Missing key"):
        wrapped.load_state_dict(
            {name: value for name, value in state.items() if "decoder" not in name}
        )
    with pytest.raises(RuntimeError, match="Unexpected key"):
        wrapped.load_state_dict({**state, "more": torch.zeros(1)})


# --- Trainer
# -----------------------------------------------------------------------------------------------------


def make_trainer(model: object, folder: Path, rows: list, **options: object):
    from transformers import Trainer, TrainingArguments

    settings = {
        "num_train_epochs": 4, "per_device_train_batch_size": 4, "per_device_eval_batch_size": 2, "learning_rate": 2e-2,
        "save_strategy": "epoch", "logging_strategy": "epoch", "eval_strategy": "epoch", "report_to": [],
        "use_cpu": True, "disable_tqdm": True, "remove_unused_columns": False,
    }  # fmt: skip
    return Trainer(
        model=pe.wrap_for_trainer(model),
        args=TrainingArguments(output_dir=str(folder), **{**settings, **options}),
        data_collator=DataCollatorForWords(model),
        train_dataset=rows,
        eval_dataset=rows[:5],
        compute_metrics=trainer_metrics(model),
    )


def test_texts_of_like_length_share_a_batch(tmp_path: Path) -> None:
    """The Trainer takes lengths from ``input_ids`` of rows that are mappings; the words serve."""
    model = pe.SequenceTagger(toy_table(5), TAGS)
    lengths = [1 + i % 7 for i in range(160)]
    rows = [{"words": ["me"] * n, "tags": [TAGS[0]] * n, "input_ids": ["me"] * n} for n in lengths]
    sizes: list[set[int]] = []
    collate = DataCollatorForWords(model)

    def follow(items: list) -> dict:
        sizes.append({len(item["words"]) for item in items})
        return collate(items)

    options = {
        "train_sampling_strategy": "group_by_length",
        "num_train_epochs": 1,
        "eval_strategy": "no",
    }
    trainer = make_trainer(model, tmp_path, rows, save_strategy="no", **options)
    trainer.data_collator = follow
    trainer.train()
    assert len(sizes) == 40
    assert sum(map(len, sizes)) < 80  # one or two lengths a batch; about 130 in a random order


@pytest.mark.parametrize("kind", ["tagger", "texts", "pairs of pieces"])
def test_trainer_learns_evaluates_and_saves(kind: str, tmp_path: Path) -> None:
    build, rows = KINDS[kind]
    model = build()
    frozen = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    trainer = make_trainer(model, tmp_path, rows)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 4
    assert losses[-1] < losses[0]
    assert all(torch.equal(model.get_parameter(name), value) for name, value in frozen.items())
    texts, gold = (
        [model.text_of(row) for row in rows[:5]],
        [model.labels_of(row) for row in rows[:5]],
    )
    predicted = model.predict(texts)
    wrapped = [[label] if isinstance(label, str) else label for label in predicted]
    right = entity_f1(gold, wrapped).f1 if model.default_metric == "f1" else accuracy(gold, wrapped)
    assert trainer.evaluate()[f"eval_{model.default_metric}"] == right
    trainer.save_model(str(tmp_path / "final"))
    for folder in (tmp_path / "final", tmp_path / "checkpoint-12"):
        again = type(model).from_pretrained(folder)
        assert again.predict(texts) == predicted
        for name, value in model.state_dict().items():
            assert torch.equal(again.state_dict()[name], value), name


def test_trainer_predicts_crf_paths_of_all_lengths(tmp_path: Path) -> None:
    """Batches are padded to different widths; a CRF's best path is not each word's best tag."""
    tagger = tagger_of_words()
    with torch.no_grad():
        tagger.decoder.crf.transitions.normal_(std=3)
    rows = [CORPUS[i] for i in (2, 2, 0, 1, 2, 2, 1)]
    found = make_trainer(tagger, tmp_path, rows).predict(rows)
    gold, said = (
        tagger.encode_labels([row.tags for row in rows]),
        tagger.predict([row.words for row in rows]),
    )
    assert np.array_equal(found.label_ids, gold.numpy())
    assert [[TAGS[i] for i in row if i != -100] for row in found.predictions] == said
    assert found.metrics["test_f1"] == entity_f1([row.tags for row in rows], said).f1
    apart = tagger.emissions(*tagger.encode(SENTENCES)).argmax(-1)
    assert any(
        TAGS[i] != tag
        for i, tag in zip(apart[0].tolist(), tagger.predict(SENTENCES)[0], strict=False)
    )
    unlabelled = make_trainer(tagger, tmp_path, rows).predict(
        [{"words": row.words} for row in rows]
    )
    assert np.array_equal(unlabelled.predictions, found.predictions)
    assert unlabelled.label_ids is None


def test_trainer_goes_on_to_the_same_numbers(tmp_path: Path) -> None:
    def train(folder: Path, seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        tagger = tagger_of_words()
        make_trainer(tagger, folder, CORPUS).train(resume_from_checkpoint=folder.name == "cut")
        return tagger.state_dict()

    whole = train(tmp_path / "whole", 0)
    shutil.copytree(tmp_path / "whole" / "checkpoint-6", tmp_path / "cut" / "checkpoint-6")
    config = json.loads((tmp_path / "cut" / "checkpoint-6" / "config.json").read_text())
    assert config["class"] == "SequenceTagger"
    sources = [
        one["config"].get("source") for one in config["config"]["embedder"]["config"]["embedders"]
    ]
    assert sources == [None] * 3, "no copies of vectors in a checkpoint"
    resumed = train(tmp_path / "cut", 1)
    assert all(torch.equal(value, resumed[name]) for name, value in whole.items())


def test_trainer_takes_the_best_epoch_back(tmp_path: Path) -> None:
    tagger = tagger_of_words()
    trainer = make_trainer(
        tagger,
        tmp_path,
        CORPUS,
        load_best_model_at_end=True,
        metric_for_best_model="f1",
        learning_rate=0.1,
    )
    scores = iter([0.2, 0.9, 0.1, 0.3])
    trainer.compute_metrics = lambda found: {"f1": next(scores)}
    trainer.train()
    assert trainer.state.best_model_checkpoint.endswith("checkpoint-6")
    best = pe.SequenceTagger.from_pretrained(tmp_path / "checkpoint-6")
    assert all(
        torch.equal(value, best.state_dict()[name]) for name, value in tagger.state_dict().items()
    )
    last = pe.SequenceTagger.from_pretrained(tmp_path / "checkpoint-12")
    assert not torch.equal(last.decoder.linear.weight, best.decoder.linear.weight)


class Own(ToyWordEncoder):
    def get_config(self) -> dict:
        raise TypeError("it cannot be rebuilt, got Own")


def test_files_of_vectors_are_not_in_checkpoints(tmp_path: Path) -> None:
    source = FastTextVectors.train(
        [["me", "gusta"]] * 9, tmp_path / "es.bin", dim=3, min_count=1, bucket=10
    )
    lexicon = pe.Lexicon(["me", "gusta"])
    tagger = pe.SequenceTagger(pe.SourceEmbedding(source, lexicon), ["O", "B-X"])
    DataCollatorForWords(tagger).tokenizer.save_pretrained(tmp_path / "checkpoint")
    names = {path.name for path in (tmp_path / "checkpoint").iterdir()}
    assert names == {"config.json", "lexicon.json", "model.safetensors"}


def test_parts_that_cannot_be_rebuilt_leave_the_weights(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    tagger = pe.SequenceTagger(Own(4), TAGS)
    trainer = make_trainer(tagger, tmp_path, CORPUS, save_strategy="no")
    with pytest.warns(UserWarning, match=r"final holds weights alone, .* got Own"):
        trainer.save_model(str(tmp_path / "final"))
    saved = load_file(tmp_path / "final" / "model.safetensors")
    assert torch.equal(saved["embedder.embedding.weight"], tagger.embedder.embedding.weight)
    assert not (tmp_path / "final" / "config.json").exists()


def test_unseen_words_need_the_lexicon_first() -> None:
    """A batch of ids knows the words of the model's lexicon alone."""
    rows = [{"words": ["cuando", "song", "me"], "tags": ["B-ES", "O", "B-ES"]}]
    tagger = tagger_of_words()
    assert DataCollatorForWords(tagger)(rows)["inputs"][0, 0] == 1
    wider = tagger.with_words(["cuando"])
    batch = DataCollatorForWords(wider)(rows)
    assert batch["inputs"][0, 0] == len(WORDS) + 2
    found = pe.wrap_for_trainer(wider).eval()(**batch).logits[0]
    assert [TAGS[i] for i in found] == tagger.predict([rows[0]["words"]])[0]


# --- loops of others
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", ["torch", "accelerate", "fabric", "trainer"])
def test_own_trainer(loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if loop == "fabric":
        pytest.importorskip("lightning_fabric")
    monkeypatch.syspath_prepend(ROOT / "examples")
    example = importlib.import_module("own_trainer")
    train, dev = load_sample("es-en", "train")[:48], load_sample("es-en", "dev")[:8]
    tagger = example.build_tagger(train)
    losses = example.LOOPS[loop](tagger, train, dev, 2, tmp_path)
    assert losses[1] < 0.95 * losses[0]
    tagger.save_pretrained(tmp_path / "tagger")
    words = [sentence.words for sentence in dev]
    assert pe.SequenceTagger.from_pretrained(tmp_path / "tagger").predict(words) == tagger.predict(
        words
    )
