"""The papers' protocols on real text, and whether the differences are sure.

    python benchmarks/protocols.py                      # run_zero_shot, sagt and hinglish
    python benchmarks/protocols.py --protocol joint

- ``run_zero_shot``: entities, CoNLL-2002 Spanish -> Dutch and back (van der Heijden 2019). The
  systems differ in their static vectors: the source language's alone; each language's own in
  unrelated spaces; the same spaces aligned (MUSE, from the words in both vocabularies, with five
  refinements); one space trained on both texts.
- ``run_joint``: the same languages and systems in scenarios A and B.
- ``sagt``, ``hinglish``: parts of speech and entities in code-switched text (Winata 2021), with the
  vectors of either language alone, and with self-attention over both.

All systems have the same bidirectional LSTM and CRF over frozen fastText vectors. The vectors are
trained here on raw text of each language, with the words of the training sentences added. The
significance tests of the differences follow each table. Vectors and finished runs are kept in
``--cache``, so an interrupted run continues.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import torch
from _results import option, show
from tagging_quality import DATA, ROOT, TASKS, Vectors, build_part, raw_text

import polyembed as pe
from polyembed.evaluation import (
    Corpus,
    ProtocolResult,
    run_code_switched,
    run_joint,
    run_zero_shot,
    significance_table,
)
from polyembed.evaluation.protocols import Build
from polyembed.tables import Table
from polyembed.training import FitOptions
from polyembed.vectors import FastTextVectors, JoinedVectors

sys.path.append(str(ROOT / "examples"))
from _laser import bio_confusion


class TaskVectors(Vectors):
    """The vectors of a task, trained on the first `lines` lines of each language's text."""

    def __init__(self, task: str, cache: Path, dim: int, lines: int) -> None:
        super().__init__(task, cache / "vectors" / f"{lines or 'all'}-lines", dim)
        self.lines = lines

    def corpus(self, languages: tuple[str, ...]) -> list[list[str]]:
        """Return the text of the languages and the task's training words."""
        train = [" ".join(sentence.words).split() for sentence in TASKS[self.task].load()[0]]
        return [
            *(
                words
                for language in languages
                for words in islice(raw_text(language, self.folder.parent), self.lines or None)
            ),
            *train,
        ]

    def words(self, languages: tuple[str, ...], dim: int) -> FastTextVectors:
        """Load or train fastText vectors of the languages' joint text."""
        return train_vectors(
            self.folder / f"{'-'.join(languages)}.{dim}.bin", dim, lambda: self.corpus(languages)
        )


def train_vectors(path: Path, dim: int, corpus: Callable[[], list[list[str]]]) -> FastTextVectors:
    """Load fastText vectors from `path`, or train them if the file does not exist."""
    if path.exists():
        return FastTextVectors(path)
    start = time.perf_counter()
    vectors = FastTextVectors.train(corpus(), path, dim=dim, min_count=2, bucket=100_000, epochs=10)
    print(f"trained {path.name} in {time.perf_counter() - start:.0f} s", flush=True)
    return vectors


def spread(sentences: Sequence, count: int) -> list:
    """Return `count` evenly spaced sentences: every n-th sentence, with the largest possible n."""
    step = max(1, len(sentences) // count)
    return list(sentences[::step][:count])


def load(name: str, language: str, arguments: argparse.Namespace) -> Corpus:
    """Load the requested numbers of a task's sentences."""
    train, dev, test = TASKS[name].load()
    sizes = arguments.sentences, arguments.dev, arguments.test or len(test)
    return Corpus(
        language,
        *(spread(part, size) for part, size in zip((train, dev, test), sizes, strict=True)),
    )


def make_build(embed: Callable[[pe.Lexicon], torch.nn.Module], corpora: Sequence[Corpus]) -> Build:
    """Return the builder of a system: an embedder under the LSTM and CRF of all systems."""
    sentences = [sentence for corpus in corpora for part in corpus[1:] for sentence in part]
    tags = sorted({tag for sentence in sentences for tag in sentence.tags})

    def build(train: Sequence, seed: int) -> pe.SequenceTagger:
        lexicon = pe.Lexicon.from_sentences(sentence.words for sentence in train)
        embedder = pe.UniqueWords(embed(lexicon))
        encoder = pe.LSTMSequenceEncoder(embedder.embedding_dim, hidden_size=128, dropout=0.4)
        return pe.SequenceTagger(embedder, tags, encoder=encoder)

    return build


def static(vectors: object, corpora: Sequence[Corpus]) -> Build:
    """Return the builder of a system with static word vectors."""
    return make_build(lambda lexicon: pe.SourceEmbedding(vectors, lexicon), corpora)


def cross_lingual(
    source: Corpus, target: Corpus, arguments: argparse.Namespace
) -> dict[str, Build]:
    """Return the systems of a pair of languages, which differ in their static vectors."""
    own = {
        name: TaskVectors(name, arguments.cache, arguments.dim, arguments.lines)
        for name in ("es", "nl")
    }
    es, nl = (own[name].words((name,), arguments.dim) for name in ("es", "nl"))
    both = train_vectors(
        own["es"].folder / f"es-nl.{arguments.dim}.bin",
        arguments.dim,
        lambda: [*own["es"].corpus(("es",)), *own["nl"].corpus(("nl",))],
    )
    ours, theirs = (es, nl) if source.language == "es" else (nl, es)
    mapping = pe.align_spaces(theirs, ours, dictionary="identical", max_words=arguments.align_words)
    corpora = (source, target)
    return {
        "source language": static(ours, corpora),
        "two spaces": static(JoinedVectors([ours, theirs]), corpora),
        "MUSE": static(JoinedVectors([ours, mapping(theirs)]), corpora),
        "one space": static(both, corpora),
    }


def mixed(task: str, corpus: Corpus, arguments: argparse.Namespace) -> dict[str, Build]:
    """Return the systems of a code-switched corpus."""
    vectors = TaskVectors(task, arguments.cache, arguments.dim, arguments.lines)

    def system(name: str) -> Build:
        return make_build(lambda lexicon: build_part(name, task, vectors, lexicon), [corpus])

    first, second = TASKS[task].languages
    return {
        first: system(f"fasttext-{first}"),
        second: system(f"fasttext-{second}"),
        "MME": system("mme"),
    }


def training(epochs: int, metric: str = "f1") -> FitOptions:
    """Return the training options that all tasks share."""

    def falling(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=epochs)

    return FitOptions(num_train_epochs=epochs, batch_size=32, scheduler=falling, metric=metric)


def report(title: str, result: ProtocolResult, against: str, path: Path | None = None) -> None:
    """Print the table of a result and the tests of its differences."""
    seconds = sum(epoch.seconds for run in result.runs for epoch in run.training.history)
    print(
        f"\n### {title}\n\n{len(result.runs)} runs, {result.metric}; {seconds:.0f} s of training\n"
    )
    seeds = sorted({run.seed for run in result.runs})
    show(path, title, result.table, seeds=seeds)
    tests = {
        test: significance_table(result, against, test=test) for test in ("randomization", "sign")
    }
    rows = []
    for found in zip(*(table.rows for table in tests.values()), strict=True):
        (system, language, difference, *_), *_ = found
        rows.append((system, language, difference, *(row[3] for row in found), found[0][4]))
    columns = (
        "system",
        "language",
        f"difference to {against}",
        *(f"p, {test}" for test in tests),
        "sentences",
    )
    print()
    show(path, f"{title}, significance", Table(columns, rows, digits=4), seeds=seeds)


def report_confusion(result: ProtocolResult, language: str) -> None:
    """Print the confusion of BIO tags over all seeds (van der Heijden 2019, figure 5)."""
    for system in dict.fromkeys(run.system for run in result.runs):
        predictions = result.predictions(system, language)
        gold = result.gold[language] * len(predictions)
        predicted = [tags for seed in predictions.values() for tags in seed]
        print(
            f"\n{language}, {system}\n\n{bio_confusion(gold, predicted, normalize=True).to_markdown()}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    choices = ("zero_shot", "joint", "sagt", "hinglish")
    parser.add_argument(
        "--protocol", nargs="+", choices=choices, default=["zero_shot", "sagt", "hinglish"]
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--sentences", type=int, default=2000, help="training sentences of each language"
    )
    parser.add_argument(
        "--dev", type=int, default=300, help="development sentences of each language"
    )
    parser.add_argument("--test", type=int, help="test sentences of each language; default: all")
    parser.add_argument(
        "--epochs",
        type=int,
        help="default: 20 for zero_shot and joint, 40 for sagt, 16 for hinglish",
    )
    parser.add_argument("--dim", type=int, default=100, help="dimensions of each source's vectors")
    parser.add_argument(
        "--lines", type=int, default=20_000, help="lines of each language's raw text, 0 for all"
    )
    parser.add_argument(
        "--align-words",
        type=int,
        default=20_000,
        help="the most frequent words of each language that the alignment uses",
    )
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "protocols")
    option(parser)
    arguments = parser.parse_args()
    if not DATA.is_dir():
        parser.error(f"no real data at {DATA}: set POLYEMBED_DATA")
    torch.set_num_threads(1)
    common = {
        "seeds": range(arguments.seeds),
        "folder": arguments.cache / "runs",
        "progress": False,
    }
    for name in arguments.protocol:
        if name in ("sagt", "hinglish"):
            corpus = load(name, name, arguments)
            epochs = arguments.epochs or (40 if name == "sagt" else 16)
            options = training(epochs, TASKS[name].metric)
            result = run_code_switched(mixed(name, corpus, arguments), [corpus], options, **common)
            report(f"{name}: train and test on code-switched text", result, "MME", arguments.json)
            continue
        options = training(arguments.epochs or 20)
        es, nl = (load(language, language, arguments) for language in ("es", "nl"))
        if name == "joint":
            systems = cross_lingual(es, nl, arguments)
            a, b = (
                run_joint(systems, es, [nl], options, scenario=scenario, **common)
                for scenario in ("A", "B")
            )
            report(
                "Joint training, scenario A: a quarter of each language",
                a,
                "one space",
                arguments.json,
            )
            report(
                "Joint training, scenario B: all of Spanish, a quarter of Dutch",
                b,
                "one space",
                arguments.json,
            )
            print(f"\n### From A to B\n\n{b.gain_over(a).to_markdown()}", flush=True)
            continue
        for source, target in ((es, nl), (nl, es)):
            result = run_zero_shot(
                cross_lingual(source, target, arguments), source, [target], options, **common
            )
            report(
                f"Zero-shot, {source.language} to {target.language}",
                result,
                "one space",
                arguments.json,
            )
            report_confusion(result, target.language)


if __name__ == "__main__":
    main()
