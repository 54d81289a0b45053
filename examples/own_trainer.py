"""Train one tagger in four loops: plain torch, Accelerate, Lightning Fabric, and the Trainer of
transformers.

    python examples/own_trainer.py --with trainer
    torchrun --nproc-per-node=2 examples/own_trainer.py --with accelerate   # data-parallel

The data is the bundled Spanish-English sample. A loop needs to know three things about polyembed: a
batch is ``tagger.collate(sentences)``, calling the tagger gives the loss, and `save_pretrained`
writes the folder.
"""

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from _recipes import positive
from torch.utils.data import DataLoader

import polyembed as pe
from polyembed.data import TaggedSentence, load_sample
from polyembed.metrics import accuracy
from polyembed.tagging import to_device
from polyembed.training import DataCollatorForWords, default_optimizer

Loop = Callable[
    [pe.SequenceTagger, Sequence[TaggedSentence], Sequence[TaggedSentence], int, Path], list[float]
]


def build_tagger(train: Sequence[TaggedSentence]) -> pe.SequenceTagger:
    """Build a tagger from embeddings of words and characters, an LSTM and a CRF."""
    lexicon = pe.Lexicon.from_sentences(sentence.words for sentence in train)
    words = pe.SourceEmbedding.from_embedding(torch.nn.Embedding(len(lexicon), 50), lexicon)
    characters = pe.SpelledEmbedding.from_characters(
        lexicon, pe.CharCNN(lexicon.num_characters, embedding_dim=50)
    )
    embedder = pe.UniqueWords(pe.MetaEmbedding.concat([words, characters]))
    encoder = pe.LSTMSequenceEncoder(embedder.embedding_dim, hidden_size=64)
    tags = sorted({tag for sentence in train for tag in sentence.tags})
    return pe.SequenceTagger(embedder, tags, encoder=encoder)


def make_optimizer(tagger: torch.nn.Module) -> torch.optim.Optimizer:
    return default_optimizer(tagger, lr=2e-3)


def make_loader(tagger: pe.SequenceTagger, train: Sequence[TaggedSentence]) -> DataLoader[Any]:
    return DataLoader(list(train), batch_size=16, shuffle=True, collate_fn=tagger.collate)


def with_torch(
    tagger: pe.SequenceTagger, train: Any, dev: Any, epochs: int, folder: Path
) -> list[float]:
    optimizer, loader, losses = make_optimizer(tagger), make_loader(tagger, train), []
    for _ in range(epochs):
        tagger.train()
        total = 0.0
        for batch in loader:
            optimizer.zero_grad()
            loss = tagger(**batch)
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total / len(loader))
    return losses


def with_accelerate(
    tagger: pe.SequenceTagger, train: Any, dev: Any, epochs: int, folder: Path
) -> list[float]:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    model, optimizer, loader = accelerator.prepare(
        tagger, make_optimizer(tagger), make_loader(tagger, train)
    )
    losses = []
    for _ in range(epochs):
        model.train()
        total = 0.0
        for batch in loader:
            optimizer.zero_grad()
            loss = model(**batch)
            accelerator.backward(loss)
            optimizer.step()
            total += accelerator.reduce(loss.detach(), "mean").item()
        losses.append(total / len(loader))
    accelerator.save_state(str(folder / "state"))  # accelerator.load_state reads it
    return losses


def with_fabric(
    tagger: pe.SequenceTagger, train: Any, dev: Any, epochs: int, folder: Path
) -> list[float]:
    from lightning_fabric import Fabric  # or: from lightning.fabric import Fabric

    fabric = Fabric(accelerator="auto", devices=1)
    model, optimizer = fabric.setup(tagger, make_optimizer(tagger))
    loader = fabric.setup_dataloaders(make_loader(tagger, train))
    losses = []
    for _ in range(epochs):
        model.train()
        total = 0.0
        for batch in loader:
            optimizer.zero_grad()
            loss = model(**batch)
            fabric.backward(loss)
            optimizer.step()
            total += loss.item()
        losses.append(total / len(loader))
    fabric.save(
        folder / "state.ckpt", {"model": model, "optimizer": optimizer}
    )  # fabric.load reads it
    return losses


def with_trainer(
    tagger: pe.SequenceTagger, train: Any, dev: Any, epochs: int, folder: Path
) -> list[float]:
    from transformers import Trainer, TrainingArguments

    class WordTrainer(Trainer):
        """A Trainer for a model that returns its loss and whose inputs may be nested."""

        def _prepare_inputs(self, inputs):
            return to_device(inputs, self.args.device)

        def compute_loss(self, model, inputs, return_outputs=False, **_):
            return (model(**inputs), {}) if return_outputs else model(**inputs)

    options = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=epochs,
        per_device_train_batch_size=16,
        learning_rate=2e-3,
        lr_scheduler_type="constant",
        logging_strategy="epoch",
        save_strategy="no",
        remove_unused_columns=False,
        use_cpu=not torch.cuda.is_available(),
        report_to=[],
        disable_tqdm=True,
    )
    collate = DataCollatorForWords(tagger)
    trainer = WordTrainer(model=tagger, args=options, train_dataset=train, data_collator=collate)
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


LOOPS: dict[str, Loop] = {
    "torch": with_torch,
    "accelerate": with_accelerate,
    "fabric": with_fabric,
    "trainer": with_trainer,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--with", dest="loop", choices=LOOPS, default="torch")
    parser.add_argument("--epochs", type=positive, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs") / "own_trainer")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    train, dev = load_sample("es-en", "train"), load_sample("es-en", "dev")
    torch.manual_seed(arguments.seed)
    tagger = build_tagger(train)
    losses = LOOPS[arguments.loop](tagger, train, dev, arguments.epochs, arguments.out)
    print("loss of each epoch, nats a sentence:", " ".join(f"{loss:.2f}" for loss in losses))
    if int(os.environ.get("RANK", "0")):
        return  # only the first process of a launch reports
    tagger.save_pretrained(arguments.out / "tagger")
    again = pe.SequenceTagger.from_pretrained(arguments.out / "tagger")
    predicted = again.predict([sentence.words for sentence in dev])
    print(f"dev accuracy: {accuracy([sentence.tags for sentence in dev], predicted):.4f}")


if __name__ == "__main__":
    main()
