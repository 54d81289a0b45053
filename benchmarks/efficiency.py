"""The efficiency study: parameters, speed and memory of the systems of Winata 2021 and others, side
by side.

    python benchmarks/efficiency.py [--device cuda] [--models HME baked XLM-R-base] [--lengths 16
    128 512 4096]

Speed and memory do not depend on the values of the weights, so all weights are random. The words
are from natural text. Static systems have up to two sources of words (300 dimensions), two of
pieces (100 dimensions) and a character CNN (100 dimensions). Above them are the paper's Transformer
(4 layers of 200) and a CRF. Contextual systems are a linear tagger over encoders of the published
shapes, with their full vocabularies. ``no CRF`` is the control that decodes as the contextual
systems do. Lengths count words for static systems and pieces for contextual ones, as in the paper.
With ``--pieces-per-word`` both read the same words. The paper's own memory figures (GTX 1080 Ti)
are printed after the measured ones.

The table ``predict`` has the words per second of `SequenceTagger.predict` on raw sentences, with
and without unseen words.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from _efficiency import EfficiencyReport, MeasuredModel, efficiency_report, plot_efficiency
from _ratios import note
from _results import option, show
from embedding_speed import RandomVectors, build_hme, read_sentences

import polyembed as pe
from polyembed.encoders import LaserEncoder
from polyembed.tables import Table
from polyembed.vectors import BPEmbVectors

TAGS = ["O", *(f"{prefix}-{kind}" for kind in ("PER", "LOC", "ORG", "MISC") for prefix in "BI")]
PAPER_MB = {  # table 7: activation memory at 16, 32, ..., 4,096
    "FastText": (1.0, 2.0, 4.0, 10.0, 26.0, 79.0, 261.0, 941.0, 3547.0),
    "Linear": (1.0, 2.0, 4.0, 10.0, 27.4, 80.8, 265.6, 950.0, 3562.0),
    "Concat": (1.0, 2.0, 5.0, 11.2, 29.2, 85.2, 274.5, 967.5, 3596.5),
    "MME": (1.0, 2.0, 5.4, 12.4, 31.0, 89.0, 283.2, 985.6, 3630.6),
    "HME": (3.2, 6.6, 13.4, 28.6, 64.2, 154.8, 416.4, 1252.0, 4155.0),
    "Scratch 2L": (2.0, 4.0, 8.0, 20.0, 46.0, 133.0),
    "Scratch 4L": (3.0, 7.0, 15.0, 38.0, 90.0, 264.0),
    "mBERT": (10.0, 20.0, 41.0, 100.0, 218.0, 597.0),
    "XLM-R base": (10.0, 20.0, 41.0, 100.0, 218.0, 597.0),
    "XLM-R large": (25.0, 52.0, 109.0, 241.0, 579.0, 1541.0),
    "XLM-MLM large": (20.0, 42.0, 89.0, 193.0, 467.0, 1158.0),
}
BASE = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}
LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


class Study:
    """The lexicon, the embedders and the builders of all systems."""

    def __init__(
        self, sentences: Sequence[Sequence[str]], folder: Path, device: torch.device
    ) -> None:
        self.device = device
        self.lexicon = pe.Lexicon.from_sentences(sentences)
        self.words = [
            pe.SourceEmbedding(RandomVectors(300, seed), self.lexicon) for seed in range(2)
        ]
        pieces = [
            BPEmbVectors.train(
                sentences[:5000], folder / f"{i}", vocab_size=2000 + 1000 * i, dim=100, epochs=1
            )
            for i in range(2)
        ]
        self.hme = build_hme(self.lexicon, pieces)
        self.models: dict[str, Callable[[], pe.SequenceTagger | MeasuredModel]] = {
            "FastText": lambda: self.static(self.words[0]),
            "Linear": lambda: self.static(pe.MetaEmbedding.linear(self.words, embedding_dim=300)),
            "Concat": lambda: self.static(pe.MetaEmbedding.concat(self.words)),
            "MME": lambda: self.static(
                pe.MetaEmbedding.self_attention(self.words, embedding_dim=300)
            ),
            "HME": lambda: self.static(self.hme),
            "HME, UniqueWords": lambda: self.static(pe.UniqueWords(self.hme)),
            "HME, baked": lambda: self.static(pe.bake(self.hme)),
            "HME, baked, no CRF": lambda: self.static(pe.bake(self.hme), crf=False),
            "5 HME, baked": self.ensemble,
            "Scratch 2L": lambda: self.bert(num_hidden_layers=2),
            "Scratch 4L": lambda: self.bert(num_hidden_layers=4),
            "mBERT": self.bert,
            "DLFA over mBERT": lambda: self.bert(fusion=pe.DLFA(768, 8)),
            "LaserTop": self.laser,
            "XLM-R base": lambda: self.xlm_roberta(BASE),
            "XLM-R large": lambda: self.xlm_roberta(LARGE),
            "XLM-MLM large": self.xlm,
        }

    def static(self, embedder: torch.nn.Module, *, crf: bool = True) -> pe.SequenceTagger:
        """Build a tagger: an embedder, the paper's Transformer, and a CRF or a softmax decoder."""
        encoder = pe.TransformerSequenceEncoder(embedder.embedding_dim)
        decoder = None if crf else pe.SoftmaxDecoder(encoder.embedding_dim, len(TAGS))
        tagger = pe.SequenceTagger(embedder, TAGS, encoder=encoder, decoder=decoder)
        return tagger.to(self.device)

    def ensemble(self) -> MeasuredModel:
        """Build a voting ensemble of five taggers over one baked table.

        The members are trained separately, so the ensemble has no training step to measure.
        """
        baked = pe.bake(self.hme)
        voting = pe.VotingEnsemble([self.static(baked) for _ in range(5)])

        def inputs(rows: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
            ids = torch.randint(2, len(self.lexicon), (rows, length)).to(self.device)
            return ids, torch.ones_like(ids, dtype=torch.bool)

        def scores(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
            return torch.stack([member.emissions(*batch) for member in voting.members])

        return MeasuredModel(voting, inputs, lambda batch: voting.decode(*batch), scores)

    def contextual(self, model: torch.nn.Module, **options: object) -> pe.SequenceTagger:
        """Build a linear tagger over an encoder of transformers."""
        encoder = pe.PretrainedWordEncoder(model, **options)
        decoder = pe.SoftmaxDecoder(encoder.embedding_dim, len(TAGS))
        return pe.SequenceTagger(encoder, TAGS, decoder=decoder).to(self.device)

    def laser(self) -> pe.SequenceTagger:
        """Build an encoder of LASER 1's shape under the tagger of its paper."""
        words = pe.encoders.LaserTop(LaserEncoder(73_640))
        words.max_length = 512  # an LSTM of this size takes minutes for a long sentence
        encoder = pe.TransformerSequenceEncoder(
            words.embedding_dim,
            hidden_size=300,
            num_layers=2,
            num_heads=2,
            feed_forward_size=300,
            norm_first=False,
        )
        return pe.SequenceTagger(words, TAGS, encoder=encoder).to(self.device)

    def bert(self, fusion: torch.nn.Module | None = None, **sizes: int) -> pe.SequenceTagger:
        """Build a tagger over an encoder of the shape of mBERT (uncased), or of other sizes.

        The three systems of table 4 have 167, 96 and 111 million parameters.
        """
        from transformers import BertConfig, BertModel

        config = BertConfig(vocab_size=105_879, **{**BASE, **sizes})
        return self.contextual(BertModel(config, add_pooling_layer=False), fusion=fusion)

    def xlm_roberta(self, sizes: dict[str, int]) -> pe.SequenceTagger:
        """Build a tagger over an encoder of XLM-R's shape."""
        from transformers import XLMRobertaConfig, XLMRobertaModel

        config = XLMRobertaConfig(
            vocab_size=250_002, max_position_embeddings=514, pad_token_id=1, **sizes
        )
        return self.contextual(XLMRobertaModel(config, add_pooling_layer=False))

    def xlm(self) -> pe.SequenceTagger:
        """Build a tagger over an encoder of XLM-MLM large's shape (xlm-mlm-100-1280).

        It has 100 languages and no language embeddings.
        """
        from transformers import XLMConfig, XLMModel

        sizes = {
            "emb_dim": 1280,
            "n_layers": 16,
            "n_heads": 16,
            "n_langs": 100,
            "use_lang_emb": False,
        }
        return self.contextual(XLMModel(XLMConfig(vocab_size=200_000, **sizes)))


def note_ratios(report: EfficiencyReport, length: int) -> None:
    """Print and record ratios of the models' speeds at one length."""
    speeds = {
        name: part[length].sentences for name, part in report.speeds.items() if length in part
    }
    for one, other in (
        ("HME, baked", "XLM-R base"),
        ("HME, baked", "HME"),
        ("HME, UniqueWords", "HME"),
    ):
        if one in speeds and other in speeds:
            note(f"{one} over {other}, sentences a second at {length}", speeds[one] / speeds[other])


def print_predict(study: Study, sentences: list[list[str]], path: Path | None) -> None:
    """Time the tagging of raw sentences, with all words known and with a tenth unknown."""
    torch.manual_seed(0)
    rows = []
    for share in (0.0, 0.1):
        tagger = study.static(pe.bake(study.hme)).eval()
        unseen = [
            [
                f"{word}{number}x{i}" if torch.rand(()) < share else word
                for i, word in enumerate(words)
            ]
            for number, words in enumerate(sentences)
        ]
        tagger.predict(unseen[:64])
        times = []
        for _ in range(3):
            start = time.perf_counter()
            tagger.predict(unseen)
            times.append(time.perf_counter() - start)
        rows.append(
            (f"{100 * share:.0f} %", f"{sum(map(len, unseen)) / statistics.median(times):,.0f}")
        )
    print()
    show(path, "predict", Table(("unseen words", "words a second, predict"), rows))


def parse_score(text: str) -> tuple[str, int, float]:
    name, _, figures = text.partition("=")
    parameters, score = figures.split(":")
    return name, int(parameters), float(score)


def draw_scores(scores: Sequence[tuple[str, int, float]], path: Path) -> None:
    """Draw the scores of other trained systems against their parameters (Winata 2021, figure 2)."""
    from matplotlib import pyplot as plt

    ax = plt.figure(layout="constrained").subplots()
    for name, count, score in scores:
        ax.scatter([count], [score])
        ax.annotate(name, (count, score), textcoords="offset points", xytext=(4, 4))
    ax.set_xscale("log")
    ax.set(xlabel="parameters", ylabel="score")
    ax.figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, help="a text with one sentence per line, .xz or plain")
    parser.add_argument("--device", default="cpu", type=torch.device)
    parser.add_argument("--models", nargs="+", help="the systems; default: all")
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS)
    parser.add_argument("--sentences", type=int, default=20_000, help="sentences for the lexicon")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument(
        "--max-seconds",
        type=float,
        default=20.0,
        help="the time limit for the runs of one model at one length",
    )
    parser.add_argument("--pieces-per-word", type=float, default=1.0)
    parser.add_argument("--predict", type=int, default=2000, help="raw sentences to tag (0: none)")
    parser.add_argument(
        "--scores",
        nargs="*",
        type=parse_score,
        default=[],
        metavar="NAME=PARAMETERS:SCORE",
        help="draw figure 2 with these scores",
    )
    parser.add_argument("--out", type=Path, default=Path("runs") / "efficiency")
    option(parser)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    sentences = read_sentences(arguments.text, arguments.sentences)
    study = Study(sentences, arguments.out / "pieces", arguments.device)
    unknown = sorted(set(arguments.models or ()) - set(study.models))
    if unknown:
        parser.error(f"--models must be among {', '.join(study.models)}, got {', '.join(unknown)}")
    models = {name: study.models[name]() for name in arguments.models or study.models}
    report = efficiency_report(
        models,
        lengths=arguments.lengths,
        runs=arguments.runs,
        max_seconds=arguments.max_seconds,
        pieces_per_word=arguments.pieces_per_word,
    )
    print(
        f"torch {torch.__version__}, {report.device}, {report.threads} threads of {os.cpu_count()}; ",
        end="",
    )
    print(f"{len(study.lexicon):,} words known\n")
    tables = {
        "size": ("Size", report.size_table()),
        "speed": ("Sentences a second", report.speed_table()),
        "before": ("Before the model, ms", report.preprocessing_table()),
        "memory": ("Activation memory, forward pass, MB", report.memory_table()),
        "training_memory": (
            "Activation memory, training step, MB",
            report.memory_table("training"),
        ),
    }
    for name, (title, table) in tables.items():
        print(f"{title}\n")
        show(arguments.json, name, table)
        print()
    paper = [
        (
            name,
            *(dict(zip(LENGTHS, values, strict=False)).get(length) for length in arguments.lengths),
        )
        for name, values in PAPER_MB.items()
    ]
    print("The paper's table 7\n")
    show(arguments.json, "paper", Table(("model", *map(str, arguments.lengths)), paper, 1))
    print()
    note_ratios(report, 128)
    if arguments.predict:
        print_predict(
            study, [words for words in sentences if words][: arguments.predict], arguments.json
        )
    arguments.out.mkdir(parents=True, exist_ok=True)
    for picture in ("speed", "memory"):
        plot_efficiency(report, picture).figure.savefig(arguments.out / f"{picture}.png", dpi=100)
    if arguments.scores:
        draw_scores(arguments.scores, arguments.out / "score.png")


if __name__ == "__main__":
    main()
