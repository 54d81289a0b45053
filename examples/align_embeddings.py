r"""Align one language's word vectors with another's, look up translations, and draw word pairs
before and after.

    python examples/align_embeddings.py es.vec en.vec --train es-en.0-5000.txt \
        --test es-en.5000-6500.txt
    python examples/align_embeddings.py cc.es.300.bin cc.en.300.bin --method adversarial \
        --test es-en.5000-6500.txt

Vectors are fastText models (.bin) or text files (.vec, GloVe). Dictionaries are in MUSE's format,
with a pair of words per line. The mapping is written to ``--out``/mapping, which
`OrthogonalMapping.from_pretrained` opens. With ``--test``, the program also prints a table of how
many translations are found, and draws word pairs in the plane of their first two principal
components.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from _recipes import positive

import polyembed as pe
from polyembed.data import read_dictionary
from polyembed.functional import length_normalize
from polyembed.transfer import AdversarialOptions
from polyembed.vectors import FastTextVectors, TextVectors

Vectors = FastTextVectors | TextVectors


def open_vectors(path: Path) -> Vectors:
    return FastTextVectors(path) if path.suffix == ".bin" else TextVectors(path)


def print_translations(
    source: object, target: Vectors, words: Sequence[str], max_words: int
) -> None:
    """Print the three nearest words of the other language by CSLS."""
    keys = target.words[:max_words]
    rows, columns = (
        torch.from_numpy(vectors.vectors(names))
        for vectors, names in ((source, words), (target, keys))
    )
    space = torch.from_numpy(source.vectors(source.words[:max_words]))
    nearest = pe.functional.nearest_csls(rows, columns, 3, space=space)
    for word, ids in zip(words, nearest.ids.tolist(), strict=True):
        print(f"{word}: {', '.join(keys[i] for i in ids)}")


def draw_pairs(
    pairs: Sequence[tuple[str, str]],
    before: np.ndarray,
    after: np.ndarray,
    target: np.ndarray,
    path: Path,
) -> None:
    """Draw word pairs before and after the alignment.

    A panel shows the plane of the first two principal components of both languages' words.
    """
    try:
        import matplotlib
    except ImportError:
        print("No picture: pip install matplotlib")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(12, 6), layout="constrained")
    for axes, source, title in zip(panels, (before, after), ("before", "after"), strict=True):
        points = length_normalize(torch.from_numpy(np.concatenate([source, target])))
        points = points - points.mean(0)
        plane = torch.linalg.svd(points, full_matrices=False).Vh[:2]
        one, other = (points @ plane.T).split(len(pairs))
        for (word, translation), a, b in zip(pairs, one.tolist(), other.tolist(), strict=True):
            axes.plot(*zip(a, b, strict=True), color="0.8", zorder=0)
            axes.annotate(word, a, color="C0")
            axes.annotate(translation, b, color="C1")
        axes.scatter(*one.T, color="C0", label="source")
        axes.scatter(*other.T, color="C1", label="target")
        axes.set_title(title)
        axes.legend()
    figure.savefig(path, dpi=150)
    print(f"Word pairs before and after: {path}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, help="vectors of the language to be mapped")
    parser.add_argument("target", type=Path, help="vectors of the other language")
    parser.add_argument("--train", type=Path, help="a dictionary to learn the mapping from")
    parser.add_argument("--test", type=Path, help="a dictionary whose words are looked up")
    parser.add_argument(
        "--method",
        choices=("identical", "similarity", "adversarial"),
        default="identical",
        help="how the mapping is learned without --train: from words of equal spelling, from "
        "similarities, or by a discriminator",
    )
    parser.add_argument("--refine", type=int, default=5)
    parser.add_argument("--max-words", type=positive, default=200_000)
    parser.add_argument(
        "--pairs", type=int, default=20, help="the number of word pairs that are printed and drawn"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("runs") / "align_embeddings")
    arguments = parser.parse_args()
    source, target = open_vectors(arguments.source), open_vectors(arguments.target)
    common = {"max_words": arguments.max_words, "device": arguments.device}
    if arguments.train or arguments.method != "adversarial":
        dictionary = read_dictionary(arguments.train) if arguments.train else arguments.method
        mapping = pe.align_spaces(
            source, target, dictionary=dictionary, refine=arguments.refine, **common
        )
    else:
        options = AdversarialOptions(seed=arguments.seed)
        mapping = pe.align_spaces(
            source, target, refine=arguments.refine, adversarial=options, **common
        )
    print(*(f"{name}: {value}" for name, value in mapping.report.items()), sep="\n")
    mapping.save_pretrained(arguments.out / "mapping")
    aligned = mapping(source)
    if arguments.test is None:
        return
    test = read_dictionary(arguments.test)
    print(f"\n{pe.translation_accuracy(aligned, target, test, **common).table().to_markdown()}")
    known = [(a, b) for a, b in test if a in source and b in target]
    pairs = list(dict(reversed(known)).items())[: arguments.pairs]  # one translation per word
    print()
    print_translations(aligned, target, [word for word, _ in pairs], arguments.max_words)
    words, translations = map(list, zip(*pairs, strict=True))
    rows = source.vectors(words), aligned.vectors(words), target.vectors(translations)
    draw_pairs(pairs, *rows, arguments.out / "pairs.png")


if __name__ == "__main__":
    main()
