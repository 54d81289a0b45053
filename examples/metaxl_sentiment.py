r"""MetaXL on sentiment: any two files of text and label, one row a line (Xia 2021, tables 3 and 6).

    python examples/metaxl_sentiment.py --source-train en.tsv --train te.tsv --dev te.dev.tsv --test te.test.tsv \
        --model xlm-roberta-base --device cuda
    python examples/metaxl_sentiment.py --source-train en.tsv --train te.tsv --pretrain en te    # pretrains an encoder

A line is ``label<TAB>text``. Without ``--dev`` and ``--test`` the last fifths of the target's rows serve. Prints target
only, joint training (JT), JT with the network and MetaXL over seeds, accuracy on test with the epoch chosen on dev.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from _metaxl import RECIPES, add_arguments, compare, draw, find_model, load_encoder
from torch import nn

import polyembed as pe
from polyembed.functional import masked_mean


class Text(NamedTuple):
    """Words with a label."""

    words: tuple[str, ...]
    label: str


def read_texts(path: Path) -> list[Text]:
    """Read ``label<TAB>text`` lines."""
    texts = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        label, tab, text = line.partition("\t")
        if not tab or not text.split():
            raise ValueError(f"{path}:{number} must be a label, a tab and a text, got {line!r}")
        texts.append(Text(tuple(text.split()), label))
    return texts


class TextClassifier(nn.Module):
    """A linear classifier over the mean of a text's word vectors."""

    def __init__(self, embedder: pe.PretrainedWordEncoder, labels: Sequence[str]) -> None:
        super().__init__()
        self.embedder, self.labels = embedder, list(labels)
        self.linear = nn.Linear(embedder.embedding_dim, len(labels))

    def collate(self, texts: Sequence[Text]) -> dict:
        """Make a batch."""
        pieces, mask = self.embedder.encode([text.words for text in texts])
        return {"pieces": pieces, "mask": mask, "labels": torch.tensor([self.labels.index(x.label) for x in texts])}

    def logits(self, pieces: pe.Pieces, mask: torch.Tensor) -> torch.Tensor:
        """Score each label."""
        return self.linear(masked_mean(self.embedder(pieces, mask.shape[1]), mask))

    def forward(self, pieces: pe.Pieces, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Give the mean loss."""
        return nn.functional.cross_entropy(self.logits(pieces, mask), labels)

    @torch.no_grad()
    def accuracy(self, texts: Sequence[Text], batch_size: int = 32) -> float:
        """Give the share of texts whose label is found."""
        mode, device, right = self.training, self.linear.weight.device, 0
        self.eval()
        for start in range(0, len(texts), batch_size):
            batch = self.collate(texts[start : start + batch_size])
            pieces = pe.Pieces(*(part.to(device) for part in batch["pieces"]))
            found = self.logits(pieces, batch["mask"].to(device)).argmax(-1).cpu()
            right += int((found == batch["labels"]).sum())
        self.train(mode)
        return right / len(texts)


def main() -> None:
    recipe = RECIPES["sentiment"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source-train", type=Path, required=True)
    parser.add_argument("--train", type=Path, required=True, help="of the target")
    parser.add_argument("--dev", type=Path)
    parser.add_argument("--test", type=Path)
    add_arguments(parser, recipe)
    parser.add_argument("--out", type=Path, default=Path("runs") / "metaxl_sentiment")
    arguments = parser.parse_args()
    if not (arguments.model or arguments.pretrain):
        parser.error("--model must name a checkpoint, or --pretrain the languages to pretrain one on")
    source, rows = read_texts(arguments.source_train), read_texts(arguments.train)
    fifth = len(rows) // 5
    target = {
        "dev": read_texts(arguments.dev) if arguments.dev else rows[-fifth:],
        "test": read_texts(arguments.test) if arguments.test else rows[-2 * fifth : -fifth],
    }
    kept = rows[: len(rows) - fifth * ((not arguments.dev) + (not arguments.test))][: arguments.target_size]
    labels = sorted({text.label for text in (*source, *kept, *target["dev"], *target["test"])})
    name = find_model(arguments, ())
    print(f"{len(source)} source texts, {len(kept)} of the target, labels {labels}, {name}")

    def build(seed: int) -> TextClassifier:
        return TextClassifier(load_encoder(name, recipe["max_length"]), labels)

    table, models = compare(build, source, kept, lambda model, part: model.accuracy(target[part]), arguments)
    print("\n" + table.to_markdown() + "\n")
    words = [[text.words for text in part[:100]] for part in (source, kept)]
    draw(models, *words, arguments.out / "clouds.png", arguments.device)


if __name__ == "__main__":
    main()
