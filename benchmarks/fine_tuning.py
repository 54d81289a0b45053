"""What does fine-tuning cost here, beside token classification by transformers alone?

    python benchmarks/fine_tuning.py [--device cuda] [--encoder FOLDER] [--runs 5]

A run is several training steps, on the same batches of 16 sentences for each system. A step encodes
raw words, computes the loss and the gradient, clips the gradient, and updates the weights with
AdamW. The table of pieces is frozen in all systems. The systems are transformers'
``AutoModelForTokenClassification``, the same encoder under a CRF, and `polyembed.build_tagger` over
the encoder, with characters, surface features, a linear path and an LSTM. Tagging is measured on
the same sentences. The baseline is transformers' tokenizer, forward pass and argmax. It uses
batches of 64 sentences in order of length, like `polyembed.SequenceTagger.predict`. The overhead of
transformers' pipeline is left out.

Without ``--encoder``, the encoder has the shape of multilingual-e5-small (12 layers of 384
dimensions), random weights, and pieces that are trained here. The values of the weights do not
change the speed. The text is SAGT's training sentences if the data folder has them, else the
bundled sample.
"""

import argparse
import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from _ratios import note
from _results import option, show
from cached_features import build_encoder
from metaxl_step import time_ms
from tagging_quality import load_sagt
from torch import Tensor, nn
from transformers import AutoModelForTokenClassification

import polyembed as pe
from polyembed.data import TaggedSentence, load_sample
from polyembed.tables import Table
from polyembed.tagging import to_device
from polyembed.training import default_optimizer

BATCH = 16
TAGGED = 64
UNIT, ALONE, WHOLE = "transformers", "under a CRF", "with all parts"


def read_train() -> list[TaggedSentence]:
    """Read SAGT's training sentences, or the bundled sample if they do not exist."""
    try:
        return [one for one in load_sagt()[0] if one.words]
    except FileNotFoundError:
        return [*load_sample("es-en", "train"), *load_sample("hi-en", "train")]


class TokenClassifier(nn.Module):
    """Transformers' token classification, with the loss at each word's first piece."""

    def __init__(self, encoder: pe.PretrainedWordEncoder, tags: Sequence[str]) -> None:
        super().__init__()
        config = copy.deepcopy(encoder.model.config)
        config.num_labels = len(tags)
        self.model = AutoModelForTokenClassification.from_config(config)
        self.model.base_model.get_input_embeddings().requires_grad_(False)
        self.tokenizer, self.tags = encoder.tokenizer, {tag: i for i, tag in enumerate(tags)}

    def encode(self, texts: list[list[str]]) -> tuple[Any, list[list[int]]]:
        """Split words into pieces, and find the position of each word's first piece."""
        options = {"is_split_into_words": True, "padding": True, "truncation": True}
        batch = self.tokenizer(texts, return_tensors="pt", max_length=512, **options)
        firsts = []
        for row in range(len(texts)):
            words = batch.word_ids(row)
            firsts.append([i for i, w in enumerate(words) if w is not None and w != words[i - 1]])
        return batch, firsts

    def forward(self, sentences: Sequence[TaggedSentence]) -> Tensor:
        """Return the mean loss of the words."""
        batch, firsts = self.encode([list(one.words) for one in sentences])
        labels = torch.full(batch["input_ids"].shape, -100)
        for row, (places, one) in enumerate(zip(firsts, sentences, strict=True)):
            labels[row, places] = torch.tensor([self.tags[str(tag)] for tag in one.tags])
        device = self.model.device
        loss: Tensor = self.model(**batch.to(device), labels=labels.to(device)).loss
        return loss

    @torch.inference_mode()
    def predict(self, texts: Sequence[Sequence[str]]) -> list[list[int]]:
        """Return the ids of the words' tags; the longest sentences are tagged first."""
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]), reverse=True)
        found: dict[int, list[int]] = {}
        for start in range(0, len(order), TAGGED):
            rows = order[start : start + TAGGED]
            batch, firsts = self.encode([list(texts[i]) for i in rows])
            best = self.model(**batch.to(self.model.device)).logits.argmax(-1).tolist()
            found |= {
                i: [tags[k] for k in places]
                for i, tags, places in zip(rows, best, firsts, strict=True)
            }
        return [found[i] for i in range(len(texts))]


def make_steps(
    model: nn.Module,
    loss: Callable[[Sequence[TaggedSentence]], Tensor],
    batches: Sequence[Sequence[TaggedSentence]],
) -> Callable[[], None]:
    """Build a function that trains the model for one epoch over the batches."""
    optimizer = default_optimizer(model)
    trained = [value for value in model.parameters() if value.requires_grad]

    def epoch() -> None:
        model.train()
        for batch in batches:
            optimizer.zero_grad()
            loss(batch).backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()

    return epoch


def tagger_loss(tagger: pe.SequenceTagger) -> Callable[[Sequence[TaggedSentence]], Tensor]:
    device = next(tagger.parameters()).device

    def loss(batch: Sequence[TaggedSentence]) -> Tensor:
        found: Tensor = tagger(**to_device(tagger.collate(list(batch)), device))
        return found

    return loss


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", help="the folder of an encoder, or its name on the hub")
    parser.add_argument("--layers", type=int, default=12, help="layers of the random encoder")
    parser.add_argument("--steps", type=int, default=12, help="training steps per run")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--device", default="cpu", type=torch.device)
    option(parser)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    train, device = read_train(), arguments.device

    def encoder() -> pe.PretrainedWordEncoder:
        if arguments.encoder:
            return pe.PretrainedWordEncoder(arguments.encoder, freeze="embeddings")
        text = [list(one.words) for one in train]
        sizes = {"hidden_size": 384, "num_layers": arguments.layers}
        return build_encoder(text, **sizes, freeze="embeddings")

    tags = sorted({tag for one in train for tag in one.tags})
    drawn = random.Random(0).sample(train, min(len(train), arguments.steps * BATCH))
    drawn.sort(key=lambda one: len(one.words))
    texts = [one.words for one in drawn]
    batches = [drawn[k : k + BATCH] for k in range(0, len(drawn), BATCH)]
    theirs = TokenClassifier(encoder(), tags).to(device)
    alone = pe.SequenceTagger(encoder(), tags).to(device)
    whole = pe.build_tagger(train, contextual=encoder().to(device), tags=tags)
    steps: dict[str, Callable[[], object]] = {
        UNIT: make_steps(theirs, theirs, batches),
        ALONE: make_steps(alone, tagger_loss(alone), batches),
        WHOLE: make_steps(whole, tagger_loss(whole), batches),
    }
    trained = time_ms(steps, str(device), arguments.runs)
    models = {UNIT: theirs, ALONE: alone, WHOLE: whole}
    calls: dict[str, Callable[[], object]] = {
        name: lambda model=model: model.eval().predict(texts) for name, model in models.items()
    }
    tagged = time_ms(calls, str(device), arguments.runs)
    words = sum(map(len, texts))
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"torch {torch.__version__}, {where}, {torch.get_num_threads()} threads")
    print(f"{len(batches)} steps of {BATCH} sentences; {words} words tagged\n")
    rows = [
        (
            name,
            trained[name] / len(batches),
            trained[name] / trained[UNIT],
            round(1e3 * words / tagged[name]),
            tagged[name] / tagged[UNIT],
        )
        for name in models
    ]
    columns = (
        "system",
        "ms a step",
        "over transformers",
        "words tagged a second",
        "tagging over transformers",
    )
    show(arguments.json, "main", Table(columns, rows, digits=2))
    print()
    for name in (ALONE, WHOLE):
        note(f"{name} over transformers, training step", trained[name] / trained[UNIT])
        note(f"{name} over transformers, tagging", tagged[name] / tagged[UNIT])


if __name__ == "__main__":
    main()
