"""How much faster than a frozen encoder are its features on disk? Sentences a second, written, read
and computed.

    python benchmarks/cached_features.py [--encoder FOLDER_OR_FILE]

Without ``--encoder``, the encoder has the shape of XLM-R base (12 layers of 768 dimensions), random
weights, and pieces that are trained here. The values of the weights do not change the speed. The
text is the Spanish text of the data folder if that exists, else the bundled sample.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from _ratios import note
from _results import option, show
from embedding_speed import read_sentences
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import polyembed as pe
from polyembed.encoders import CachedEmbedder, cache_features
from polyembed.tables import Table

BATCH = 16


def build_encoder(sentences: list[list[str]], **options: Any) -> pe.PretrainedWordEncoder:
    """Train a tokenizer, and build an untrained encoder over its pieces.

    By default the encoder has the shape of XLM-R base.
    """
    from transformers import PreTrainedTokenizerFast

    rules = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    rules.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=8000, special_tokens=special, show_progress=False
    )
    rules.train_from_iterator(map(" ".join, sentences), trainer)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=rules, **names)
    return pe.PretrainedWordEncoder.scratch(tokenizer, **{"num_layers": 12, **options})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, help="a text with one sentence per line, .xz or plain")
    parser.add_argument("--encoder", help="the folder of an encoder, or its name on the hub")
    parser.add_argument("--sentences", type=int, default=320)
    parser.add_argument("--device", default="cpu", type=torch.device)
    option(parser)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    text = [
        words[:64] for words in read_sentences(arguments.text, 60 * arguments.sentences) if words
    ]
    encoder = (
        pe.PretrainedWordEncoder(arguments.encoder, freeze="all")
        if arguments.encoder
        else build_encoder(text, freeze="all")
    )
    encoder.to(arguments.device).eval()
    sentences = [list(words) for words in dict.fromkeys(map(tuple, text))][: arguments.sentences]
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        store = cache_features(
            encoder, sentences, f"{folder}/store", batch_size=BATCH, progress=False
        )
        seconds = {"computed and written": time.perf_counter() - start}
        for name, embedder in (
            ("computed", CachedEmbedder(encoder)),
            ("read", CachedEmbedder(encoder, store)),
        ):
            start = time.perf_counter()
            for i in range(0, len(sentences), BATCH):
                embedder(embedder.encode(sentences[i : i + BATCH])[0])
            seconds[name] = time.perf_counter() - start
    words = sum(map(len, sentences))
    print(f"torch {torch.__version__}, {arguments.device}, {torch.get_num_threads()} threads")
    print(
        f"{len(sentences)} sentences of {words / len(sentences):.1f} words in batches of {BATCH}\n"
    )
    rows = [
        (name, f"{len(sentences) / value:,.1f}", f"{words / value:,.0f}")
        for name, value in seconds.items()
    ]
    show(arguments.json, "main", Table(("features", "sentences/s", "words/s"), rows))
    note("computed over read", seconds["computed"] / seconds["read"])


if __name__ == "__main__":
    main()
