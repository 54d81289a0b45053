"""What does a vote cost? Five HME-Transformer-CRF taggers against one of them.

    python benchmarks/ensemble_speed.py [--device cuda] [--small]

The sizes are from Winata 2021, or smaller with ``--small``. The members share their frozen tables.
Values do not change the speed, so the vectors are random and no member is trained. The words are
from natural text. Every ratio compares medians within one run.
"""

import argparse
import tempfile
from collections.abc import Sequence
from functools import partial

import torch
from _ratios import note
from _results import option, show
from embedding_speed import RandomVectors, median_ms, read_sentences
from torch import nn

import polyembed as pe
from polyembed.tables import Table
from polyembed.vectors import BPEmbVectors

BATCH, LENGTH, MEMBERS, TAGS = 8, 32, 5, 9
PAPER = {
    "words": 300,
    "subwords": 100,
    "characters": 100,
    "hidden_size": 200,
    "num_layers": 4,
    "feed_forward_size": 400,
}
SMALL = {
    "words": 64,
    "subwords": 32,
    "characters": 32,
    "hidden_size": 64,
    "num_layers": 2,
    "feed_forward_size": 128,
}


def build_members(
    lexicon: pe.Lexicon,
    pieces: Sequence[BPEmbVectors],
    *,
    words: int,
    subwords: int,
    characters: int,
    **encoder: int,
) -> list[pe.SequenceTagger]:
    tables = [pe.SourceEmbedding(RandomVectors(words, seed), lexicon) for seed in range(2)]
    spelled = [pe.SpelledEmbedding.from_pieces(source, lexicon) for source in pieces]
    members = []
    for _ in range(MEMBERS):
        hme = pe.HierarchicalMetaEmbedding(
            words=pe.MetaEmbedding.self_attention(tables, embedding_dim=words),
            subwords=pe.MetaEmbedding.self_attention(spelled, embedding_dim=subwords),
            characters=pe.SpelledEmbedding.from_characters(
                lexicon, pe.CharCNN(lexicon.num_characters, characters)
            ),
        )
        transformer = pe.TransformerSequenceEncoder(hme.embedding_dim, **encoder)
        tags = [f"T{i}" for i in range(TAGS)]
        members.append(pe.SequenceTagger(pe.UniqueWords(hme), tags, encoder=transformer))
    return members


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", type=torch.device)
    parser.add_argument("--small", action="store_true", help="smaller sizes than the paper's")
    parser.add_argument("--runs", type=int, default=30)
    option(parser)
    arguments = parser.parse_args()
    device, sizes = arguments.device, SMALL if arguments.small else PAPER
    torch.manual_seed(0)

    sentences = read_sentences(None, 2000 if arguments.small else 20_000)
    lexicon = pe.Lexicon.from_sentences(sentences, max_size=20_000)
    with tempfile.TemporaryDirectory() as folder:
        options = {"dim": sizes["subwords"], "epochs": 1}
        pieces = [
            BPEmbVectors.train(
                sentences[:5000], f"{folder}/{i}", vocab_size=2000 + 1000 * i, **options
            )
            for i in range(2)
        ]
        members = build_members(lexicon, pieces, **sizes)
        ensemble = pe.VotingEnsemble(members).to(device).eval()
    stream = [word for sentence in sentences for word in sentence]
    rows = [stream[i : i + LENGTH] for i in range(0, BATCH * LENGTH, LENGTH)]
    ids, mask = (part.to(device) for part in lexicon.encode(rows))
    tags = torch.randint(TAGS, ids.shape, device=device)
    print(
        f"torch {torch.__version__}, {device}, {torch.get_num_threads()} threads; batch {BATCH} x {LENGTH}\n"
    )

    def train(model: nn.Module) -> None:
        model.zero_grad()
        model(ids, tags=tags, mask=mask).backward()

    models = {"one member": members[0], "five": ensemble}
    calls = {
        "decode": lambda model: model.decode(ids, mask),
        "probabilities": lambda model: model.probabilities(ids, mask),
        "loss and backward": train,
    }
    rows = []
    for what, call in calls.items():
        with torch.set_grad_enabled(call is train):
            times = median_ms(
                {name: partial(call, model) for name, model in models.items()},
                arguments.runs,
                device,
            )
        rows += [
            (what, name, f"{ms:.2f}", f"{ms / times['one member']:.2f}")
            for name, ms in times.items()
        ]
    show(arguments.json, "main", Table(("what", "who", "ms", "of one member"), rows))
    print()
    for what, who, _, of_one in rows:
        if who == "five":
            note(f"five members over one, {what}", float(of_one))


if __name__ == "__main__":
    main()
