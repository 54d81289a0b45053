r"""MetaXL on entities: much data in one language, a hundred sentences in another (Xia 2021, tables 2 to 6).

    python examples/metaxl_ner.py --target am --size small                       # pretrains an encoder first, cached
    python examples/metaxl_ner.py --target yo --model xlm-roberta-base --device cuda --source-size 5000 10000 20000
    python examples/metaxl_ner.py --source-train es.conll --train mine.txt --dev dev.txt --test test.txt --model FOLDER

Source and target are WikiAnn of the data folder (``$POLYEMBED_DATA``, else ``../shared/data`` beside the repository),
or files of yours in any of WikiAnn's layouts. Prints target only, joint training (JT, by a batch of each or on the
concatenation), JT with the network and MetaXL over seeds, entity F1 on test with the epoch chosen on dev, and draws
source and target representations. ``--authors`` trains as the commands of the paper's code do.
"""

import argparse
import os
from pathlib import Path

import torch
from _metaxl import RECIPES, add_arguments, compare, draw, find_model, load_encoder

import polyembed as pe
from polyembed.data import read_wikiann
from polyembed.metrics import entity_f1

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("POLYEMBED_DATA") or ROOT.parent / "shared" / "data") / "wikiann"
TARGETS = {"am": "amh", "ig": "ibo", "rw": "kin", "yo": "yor", "sw": "swa"}


def main() -> None:
    recipe = RECIPES["ner"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=TARGETS, default="am")
    parser.add_argument("--source", nargs="+", default=["en"], help="of the data folder's high_resource; merged")
    parser.add_argument("--source-train", type=Path, help="a file of yours")
    for part in ("train", "dev", "test"):
        parser.add_argument(f"--{part}", type=Path, help="of the target, a file of yours")
    add_arguments(parser, recipe)
    parser.add_argument("--out", type=Path, default=Path("runs") / "metaxl_ner")
    arguments = parser.parse_args()
    folder = DATA / "low_resource" / TARGETS[arguments.target]
    files = {part: getattr(arguments, part) or folder / f"{part}.txt" for part in ("train", "dev", "test")}
    languages = [DATA / "high_resource" / language / "train.conllu" for language in arguments.source]
    source_files = [arguments.source_train] if arguments.source_train else languages
    source = [sentence for path in source_files for sentence in read_wikiann(path) if len(sentence.words)]
    target = {part: read_wikiann(path) for part, path in files.items()}
    tags = sorted({tag for sentence in (*source, *target["train"]) for tag in sentence.tags})
    name = find_model(arguments, [*arguments.source, arguments.target])
    print(f"{len(source)} source sentences, {min(arguments.target_size, len(target['train']))} of the target, {name}")

    def build(seed: int) -> pe.SequenceTagger:
        encoder = load_encoder(name, recipe["max_length"])
        return pe.SequenceTagger(encoder, tags, decoder=pe.SoftmaxDecoder(encoder.embedding_dim, len(tags)))

    def score(tagger: torch.nn.Module, part: str) -> float:
        predicted = tagger.predict([sentence.words for sentence in target[part]])
        return entity_f1([sentence.tags for sentence in target[part]], predicted, mode="conll").f1

    rows = [sentence for sentence in target["train"] if len(sentence.words)][: arguments.target_size]
    table, models = compare(build, source, rows, score, arguments)
    print("\n" + table.to_markdown() + "\n")
    words = [[sentence.words for sentence in part[:100]] for part in (source, rows)]
    draw(models, *words, arguments.out / f"{arguments.target}.png", arguments.device)


if __name__ == "__main__":
    main()
