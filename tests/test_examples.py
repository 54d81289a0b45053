"""The examples, on small files made here; `make demo` runs the main one on the sample."""

import argparse
import contextlib
import importlib
import io
import json
import random
import re
import runpy
import shutil
import sys
import warnings
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
import torch
import transformers
from tiny_models import tiny_model, word_piece_tokenizer

import polyembed as pe
import polyembed.text
from polyembed.data import TaggedSentence, load_sample
from polyembed.encoders import LaserEncoder, LaserSentences
from polyembed.evaluation import Corpus, ProtocolResult, SystemRun
from polyembed.training import Epoch, FitResult
from polyembed.vectors import OrthogonalMapping, TextVectors

ROOT = Path(__file__).resolve().parents[1]


def run(name: str, *arguments: object) -> str:
    """Run an example as a program and return what it prints; in this process, as imports take most of the time."""
    printed = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(),
        contextlib.redirect_stdout(printed),
    ):
        warnings.simplefilter("ignore")
        patch.syspath_prepend(ROOT / "examples")
        patch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    return printed.getvalue()


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "examples")
    return importlib.import_module(name)


def files_of(world: Path, language: str, suffix: str = "conll") -> list[object]:
    """The options that name the three parts of a language's corpus."""
    return [
        part
        for p in ("train", "dev", "test")
        for part in (f"--{p}", world / f"{language}.{p}.{suffix}")
    ]


@pytest.fixture
def two_languages(tmp_path: Path) -> Path:
    """Write two spaces that are one another turned, and dictionaries of them; ten strings are words of both."""
    generator = torch.Generator().manual_seed(0)
    es = torch.randn(400, 7, generator=generator) * torch.linspace(0.5, 2, 7)
    turn = torch.linalg.qr(torch.randn(7, 7, generator=generator)).Q
    en = es @ turn + 0.05 * torch.randn(400, 7, generator=generator)
    names = {"es": [f"e{i}" for i in range(400)], "en": [f"n{i}" for i in range(400)]}
    names["en"][:10] = names["es"][:10]
    for language, rows in (("es", es), ("en", en)):
        lines = [
            f"{word} {' '.join(map(str, row))}"
            for word, row in zip(names[language], rows.tolist(), strict=True)
        ]
        (tmp_path / f"{language}.vec").write_text("\n".join(["400 7", *lines]))
    pairs = [f"{one} {other}" for one, other in zip(names["es"], names["en"], strict=True)]
    (tmp_path / "train.txt").write_text("\n".join([*pairs[:50], "e1 nobody"]))
    (tmp_path / "test.txt").write_text("\n".join(pairs[50:]))
    torch.save(turn, tmp_path / "turn.pt")
    return tmp_path


@pytest.mark.parametrize("how", [["--train", "train.txt"], ["--method", "identical"]])
def test_align_embeddings(two_languages: Path, how: list[str]) -> None:
    folder = two_languages
    files = [
        folder / "es.vec",
        folder / "en.vec",
        *(folder / part if part.endswith(".txt") else part for part in how),
    ]
    printed = run(
        "align_embeddings.py", *files, "--test", folder / "test.txt", "--out", folder / "out"
    )
    assert "350" in printed
    assert "num_dropped: 1" in printed or "--train" not in how
    mapping = OrthogonalMapping.from_pretrained(folder / "out" / "mapping")
    torch.testing.assert_close(
        mapping.weight.detach(), torch.load(folder / "turn.pt"), rtol=0, atol=0.05
    )
    test = [tuple(line.split()) for line in (folder / "test.txt").read_text().splitlines()]
    es, en = TextVectors(folder / "es.vec"), TextVectors(folder / "en.vec")
    assert pe.translation_accuracy(mapping(es), en, test).csls[1] > 0.9
    assert (folder / "out" / "pairs.png").stat().st_size > 10_000


WORDS = [
    "el",
    "la",
    "un",
    "sol",
    "mar",
    "luz",
    "día",
    "agua",
    "the",
    "a",
    "sun",
    "sea",
    "light",
    "day",
    "water",
]


@pytest.fixture(scope="module")
def tiny_world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Raw text of two made-up languages, and tagged and labelled sentences of them."""
    folder = tmp_path_factory.mktemp("world")
    order = random.Random(0)

    def sentence(words: list[str]) -> list[str]:
        return [order.choice(words) for _ in range(order.randint(3, 7))]

    for language, words in (("xx", WORDS[:8]), ("yy", WORDS[8:])):
        lines = [" ".join([*sentence(words), str(number)]) for number in range(300)]
        (folder / f"{language}.txt").write_text("\n".join(lines), "utf-8")
        for part in ("train", "dev", "test"):
            rows = [
                [(word, "B-LOC" if word in ("sol", "sun") else "O") for word in sentence(words)]
                for _ in range(12)
            ]
            text = "\n\n".join("\n".join(f"{word} {tag}" for word, tag in row) for row in rows)
            (folder / f"{language}.{part}.conll").write_text(text + "\n", "utf-8")
            labelled = [
                f"{order.choice('+-')}\t{' '.join(word for word, _ in row)}" for row in rows
            ]
            (folder / f"{language}.{part}.tsv").write_text("\n".join(labelled), "utf-8")
    return folder


def pretraining(world: Path) -> list[object]:
    """The same for every example, so that one encoder serves all."""
    text = ["--text", world, "--cache", world / "encoder"]
    return ["--size", "tiny", "--pretrain", "xx", "yy", *text, "--max-steps", 3, "--seeds", 1]


@pytest.mark.parametrize("name", ["metaxl_ner", "metaxl_sentiment"])
def test_metaxl(tiny_world: Path, tmp_path: Path, name: str) -> None:
    pytest.importorskip("accelerate")
    kind = "conll" if name == "metaxl_ner" else "tsv"
    options = ["--epochs", 1, "--batch-size", 6, "--out", tmp_path]
    files = ["--source-train", tiny_world / f"xx.train.{kind}", *files_of(tiny_world, "yy", kind)]
    printed = run(f"{name}.py", *files, *pretraining(tiny_world), *options)
    methods = (
        "target only",
        "JT",
        "JT, concatenated",
        "JT with RTN, layer 0",
        "JT with RTN, layer 2",
    )
    for row in (
        *methods,
        *(f"MetaXL, {places}" for places in ("layer 0", "layer 1", "layer 2", "layers 0 and 2")),
    ):
        assert f"| {row} " in printed
    report = next(tmp_path.rglob("report.json"))
    runs = json.loads(report.read_text("utf-8"))["runs"]
    assert [len(runs), min(run["hausdorff"] for run in runs) > 0] == [9, True]
    assert (report.parent / "clouds.png").stat().st_size > 10_000


def test_metaxl_as_its_authors_ran_it(tiny_world: Path, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    files = ["--source-train", tiny_world / "xx.train.conll", *files_of(tiny_world, "yy", "conll")]
    options = ["--authors", "--epochs", 1, "--methods", "metaxl", "--layers", 2, "--out", tmp_path]
    printed = run("metaxl_ner.py", *files, *pretraining(tiny_world), *options)
    assert "| MetaXL, layer 2 " in printed
    assert "| 1000 " in printed


@pytest.fixture(scope="module")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of random weights over single letters."""
    folder = tmp_path_factory.mktemp("bert")
    letters = sorted({letter for word in WORDS for letter in word})
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *letters,
        *(f"##{letter}" for letter in letters),
    ]
    sizes = {
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 1,
        "intermediate_size": 8,
    }
    transformers.BertModel(
        transformers.BertConfig(vocab_size=len(pieces), **sizes)
    ).save_pretrained(folder)
    tokenizer = transformers.BertTokenizer(
        vocab={piece: i for i, piece in enumerate(pieces)}, strip_accents=False
    )
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def tiny_wikiann(tiny_world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sentences of `tiny_world` as Rahimi et al. 2019 lay WikiAnn out: two targets, and Spanish."""
    folder = tmp_path_factory.mktemp("wikiann")
    for language, theirs in (("qu", "yy"), ("gn", "yy"), ("es", "xx")):
        (folder / language).mkdir()
        for part in ("train", "dev", "test"):
            lines = (tiny_world / f"{theirs}.{part}.conll").read_text("utf-8").splitlines()
            text = "\n".join(
                f"{language}:{line.replace(' ', chr(9))}" if line else "" for line in lines
            )
            (folder / language / part).write_text(text + "\n\n", "utf-8")
    return folder


def test_metaxl_on_several_targets_goes_on_where_it_was_killed(
    tiny_bert: Path, tiny_wikiann: Path, tmp_path: Path
) -> None:
    options = ["--wikiann", tiny_wikiann, "--target", "qu", "gn", "--epochs", 1, "--batch-size", 6]
    options += [
        "--methods",
        "joint",
        "metaxl",
        "--layers",
        2,
        "--extend-vocabulary",
        60,
        "--out",
        tmp_path,
    ]
    options += ["--meta-learning-rate", 1e-3, 1e-5, "--seeds", 1, "--model", tiny_bert]
    printed = run("metaxl_ner.py", "--related", *options)
    assert printed.count(" pieces in the extended vocabulary") == 2
    assert "| method          | source rows | qu " in printed
    assert "gain and drop" not in printed  # of two points every correlation is 1 or -1
    assert "12 source sentences, 12 of the target" in printed
    reports = {
        target: json.loads((tmp_path / target / "report.json").read_text("utf-8"))
        for target in ("qu", "gn")
    }
    assert [one["rate"] for one in reports["gn"]["runs"]] == [None, 1e-3, 1e-5]
    del reports["qu"]["runs"][1:]
    for one, dev, test in zip(reports["gn"]["runs"], (10, 50, 51), (43.21, 99, 12.34), strict=True):
        one.update(dev=dev, test=test)
    for target, report in reports.items():
        (tmp_path / target / "report.json").write_text(json.dumps(report), "utf-8")
    printed = run("metaxl_ner.py", "--related", *options)
    assert "JT, 5000 source rows: 43.21" in printed  # read, not trained
    assert "MetaXL, layer 2, 5000 source rows: 12.34" in printed  # the better rate on dev
    assert len(json.loads((tmp_path / "qu" / "report.json").read_text("utf-8"))["runs"]) == 3
    with pytest.raises(
        ValueError, match=r"^--out must hold runs of these settings, got others in .*'epochs': 1"
    ):
        run("metaxl_ner.py", "--related", *options, "--epochs", 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--target xx", "--target must be of am ig rw yo sw in the data folder, got xx"),
        (
            "--target am --related",
            "--target must be of qu cdo ilo xmf mhr mi tk gn with --related, got am",
        ),
        (
            "--target am ig --train mine.txt",
            "--target must be one language where --train is given, got am ig",
        ),
        ("--wikiann nowhere --target qu", "there must be a file nowhere/en/train (see --wikiann"),
    ],
)
def test_metaxl_with_wrong_languages(
    options: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["metaxl_ner.py", *options.split()])
    with pytest.raises(SystemExit):
        load("metaxl_ner", monkeypatch).main()
    assert message in capsys.readouterr().err


def test_metaxl_files_that_are_wrong(
    tiny_wikiann: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything trains, also where the last of several targets is wrong."""
    example = load("metaxl_ner", monkeypatch)
    monkeypatch.setattr(example, "run_target", lambda *arguments: pytest.fail("trained"))
    folder = shutil.copytree(tiny_wikiann, tmp_path / "wikiann")
    options = ["--wikiann", folder, "--source", "es", "--target", "qu", "gn", "--model", "none"]
    monkeypatch.setattr(sys, "argv", ["metaxl_ner.py", *map(str, options)])
    for text, message in (
        ("gn:a\tB-X\n\n", "test of gn must have labels of training, .*got \\['X'\\]"),
        ("gn:a b c d\n", "test"),
    ):
        (folder / "gn" / "test").write_text(text, "utf-8")
        with pytest.raises(SystemExit, match=message):
            example.main()
        example.read.cache_clear()


def test_sentiment_labels_that_training_never_had(
    tiny_world: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    example = load("metaxl_sentiment", monkeypatch)
    monkeypatch.setattr(example, "compare", lambda *arguments: pytest.fail("trained"))
    (tmp_path / "test.tsv").write_text("odd\ta b\n", "utf-8")
    files = [
        "--source-train",
        tiny_world / "xx.train.tsv",
        *files_of(tiny_world, "yy", "tsv"),
        "--model",
        "none",
    ]
    files[files.index("--test") + 1] = tmp_path / "test.tsv"
    monkeypatch.setattr(sys, "argv", ["metaxl_sentiment.py", *map(str, files)])
    with pytest.raises(SystemExit):
        example.main()
    assert "--dev and --test must have labels of training" in capsys.readouterr().err


@pytest.mark.parametrize("places", [(), ("ner",), ("ner", "training"), ("authors",)])
def test_metaxl_recipes_with_a_wrong_key(
    places: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = load("_metaxl", monkeypatch)
    section = shared.RECIPES
    for place in places:
        section = section[place]
    monkeypatch.setitem(section, "lerning_rate", 1)

    def parse() -> None:
        parser = argparse.ArgumentParser()
        shared.add_arguments(parser, shared.RECIPES["ner"])
        parser.parse_args(["--authors"])

    with pytest.raises(
        SystemExit, match=r"^recipes\.toml: metaxl.* must have keys among .*, got 'lerning_rate'"
    ):
        parse()


@pytest.mark.parametrize("section", [None, "training"])
def test_layer_fusion_recipes_with_a_wrong_key(
    section: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = load("layer_fusion", monkeypatch)
    monkeypatch.setitem(example.RECIPE[section] if section else example.RECIPE, "lerning_rate", 1)
    with pytest.raises(
        SystemExit,
        match=r"^recipes\.toml: chenguo2022.* must have keys among .*, got 'lerning_rate'",
    ):
        example.main()


def test_some_sentences_are_spread_over_the_whole_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 578 sentences, 300 were the first 300."""
    example = load("layer_fusion", monkeypatch)
    rows = [TaggedSentence((str(i),), ("X",)) for i in range(578)]
    found = [int(row.words[0]) for row in example.spread([*rows, TaggedSentence((), ())], 300)]
    assert len(found) == 300
    assert {second - first for first, second in pairwise(found)} == {1, 2}
    assert found[-1] > 574
    assert example.spread(rows, None) == example.spread(rows, 999) == rows


def test_layers_by_ranking_and_by_score(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("scipy")
    scores = {1: [0.1, 0.3], 2: [0.3, 0.3], 3: [0.5, 0.5], 4: [0.4, 0.4]}
    ranking = {
        "retrieval": dict.fromkeys(range(5), 0.0),
        "de": {0: 9.0, 1: 0.2, 2: 0.1, 3: 0.3, 4: 0.4},
    }
    example = load("layer_fusion", monkeypatch)
    example.print_agreement("de", scores, ranking)
    found = "by retrieval (de) and by their own score: Spearman 0.60, p = 0.400; layer 4, the best by retrieval, has 0.4"
    assert found in capsys.readouterr().out
    example.print_agreement("nl", {layer: scores[layer] for layer in (1, 2, 3)}, ranking)
    assert capsys.readouterr().out == ""


def test_metaxl_over_targets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("scipy")
    found = {}
    for target, gain, drop in (("qu", 1.0, 0.1), ("gn", 2.0, 0.2), ("mi", 6.0, 0.6)):
        joint, ours = (
            {"test": 50.0, "hausdorff": 0.7},
            {"test": 50.0 + gain, "hausdorff": 0.7 - drop},
        )
        found[target] = {("JT", 9): [joint], ("MetaXL, layer 2", 9): [ours]}
    load("_metaxl", monkeypatch).across_targets(found)
    printed = capsys.readouterr().out
    assert "| MetaXL, layer 2 | 9           | 51.00 | 52.00 | 56.00 | 53.00   |" in printed
    assert (
        "MetaXL, layer 2, 9 source rows, gain and drop in distance: Correlation(pearson=1.0"
        in printed
    )


def test_metaxl_takes_a_table_s_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = load("_metaxl", monkeypatch)
    parser = argparse.ArgumentParser()
    shared.add_arguments(parser, shared.RECIPES["sentiment"])
    assert parser.parse_args([]).source_size == [1000]
    assert parser.parse_args(["--sweep", "table13"]).source_size == [100, 1000, 5000]
    layers = parser.parse_args(["--layers", "0", "0,12"])
    assert [system[1:] for system in shared.systems(layers, 12)] == [
        ((), "target only"),
        ((), "JT"),
        ((), "JT, concatenated"),
        ((0,), "JT with RTN, layer 0"),
        ((0, 12), "JT with RTN, layers 0 and 12"),
        ((0,), "MetaXL, layer 0"),
        ((0, 12), "MetaXL, layers 0 and 12"),
    ]
    layers.methods = ["printed"]
    assert next(iter(shared.systems(layers, 12))) == ("printed", (0,), "MetaXL as printed, layer 0")


@pytest.mark.parametrize(("method", "weight"), [("metaxl", 1.0), ("printed", 0.0)])
def test_metaxl_as_printed(method: str, weight: float, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = load("_metaxl", monkeypatch)
    parser = argparse.ArgumentParser()
    shared.add_arguments(parser, shared.RECIPES["ner"])
    built = []

    def trainer(*parts: object, options: object, **others: object) -> None:
        built.append(options)
        raise InterruptedError

    monkeypatch.setattr(shared, "MetaXLTrainer", trainer)
    model, network = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    with pytest.raises(InterruptedError):
        shared.train(model, [network], (0,), method, ([], []), 0, 1e-5, None, parser.parse_args([]))
    assert (built[0].objective, built[0].target_weight) == ("metaxl", weight)


@pytest.mark.parametrize(
    ("method", "residual", "detached"), [("metaxl", True, True), ("joint_rtn", False, False)]
)
def test_metaxl_networks_of_its_authors(
    method: str, residual: bool, detached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = load("_metaxl", monkeypatch)
    parser = argparse.ArgumentParser()
    shared.add_arguments(parser, shared.RECIPES["ner"])
    model = argparse.Namespace(embedder=argparse.Namespace(embedding_dim=4))
    network = shared.make_network(model, method, parser.parse_args(["--authors"]))
    assert [network.residual, network.detach_input, network.gate] == [residual, detached, "tied"]
    network = shared.make_network(model, method, parser.parse_args([]))
    assert [network.residual, network.detach_input, network.gate] == [True, False, "none"]


def test_sentiment_corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = load("metaxl_sentiment", monkeypatch)
    marc = tmp_path / "dataset_en_train.json"
    rows = [
        {"review_body": f"text {stars}", "stars": stars, "language": "en"}
        for stars in ("1", "2", "3", "4", 5)
    ]
    marc.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    expected = [(("text", n), "negative" if n in "12" else "positive") for n in "1245"]
    assert example.read_texts(marc) == expected
    (tmp_path / "list.json").write_text(
        json.dumps([*rows[:1], {"review_body": "x y", "label": "positive"}]), "utf-8"
    )
    assert example.read_texts(tmp_path / "list.json") == [expected[0], (("x", "y"), "positive")]
    (tmp_path / "data" / "main").mkdir(parents=True)
    (tmp_path / "data" / "extra").mkdir()
    values = [("+2", "خوب است"), ("-1", "بد"), ("0", "دو"), ("", "سه"), ("+1", "خوب است")]
    sentences = "".join(
        f'<Sentence ID="r" Value="{value}">{text}</Sentence>' for value, text in values
    )
    (tmp_path / "data" / "main" / "one.xml").write_text(
        f"<Product><Review>{sentences}</Review></Product>", "utf-8"
    )
    extra = "0\tچه\tT\n1\t\n2\tخوب\tOP\t\t0\n[+2]\n[@@@]\n0\tبد\n[-2]\n[@@@]\n0\t:|\n[0]\n[@@@]\n"
    (tmp_path / "data" / "extra" / "two.xml").write_text(extra, "utf-8")
    assert example.read_texts(tmp_path / "data") == [
        (("چه", "خوب"), "positive"),
        (("بد",), "negative"),
        (("خوب", "است"), "positive"),
    ]
    (tmp_path / "te").mkdir()
    (tmp_path / "te" / "product_pos.txt").write_text(
        "మంచి ఫోన్\nబాగుంది\n__________________________\nమంచి\n", "utf-8"
    )
    (tmp_path / "te" / "product_neg.txt").write_text("చెడు\n__________________________\n", "utf-8")
    found = example.read_texts(tmp_path / "te")
    assert [(len(text.words), text.label) for text in found] == [
        (3, "positive"),
        (1, "positive"),
        (1, "negative"),
    ]
    many = [example.Text((str(n),), "positive") for n in range(2200)]
    arguments = argparse.Namespace(dev=None, test=None, split="sentipers", target_size=100)
    parts = example.split(many, arguments)
    assert {part: len(texts) for part, texts in parts.items()} == {
        "dev": 1000,
        "test": 1000,
        "train": 100,
    }
    assert len({text for texts in parts.values() for text in texts}) == 2100
    for content, message in (
        ("{}", "review 1 must have review_body, and stars or a label, got {}"),
        ("", "got none"),
    ):
        marc.write_text(content, "utf-8")
        with pytest.raises(ValueError, match=message):
            example.read_texts(marc)


def test_sentiment_reads_cls_through_the_encoder_s_pooler(
    tiny_world: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = load("metaxl_sentiment", monkeypatch)
    bert = transformers.BertModel.from_pretrained(tiny_bert)
    built = []
    monkeypatch.setattr(example, "compare", lambda build, *rest: built.append((build(), rest[-1])))
    files = [
        "--source-train",
        tiny_world / "xx.train.tsv",
        *files_of(tiny_world, "yy", "tsv"),
        "--model",
        tiny_bert,
    ]
    monkeypatch.setattr(sys, "argv", ["metaxl_sentiment.py", *map(str, files)])
    example.main()
    (model, level), *_ = built
    assert [model.pooling, model.dropout, level] == ["cls", 0.1, "cls"]
    torch.testing.assert_close(model.hidden.weight, bert.pooler.dense.weight)
    model.eval()
    pieces = model.embedder.pieces([["sun"]])
    pooled = bert.eval()(pieces.piece_ids, attention_mask=pieces.piece_mask).pooler_output
    torch.testing.assert_close(model.logits(*model.encode([["sun"]])), model.linear(pooled))


def test_a_frozen_layer_beside_hme(tiny_world: Path, tmp_path: Path, tiny_bert: Path) -> None:
    beside = ["--beside", tiny_bert, "--layer", 1, "--systems", "HME + surface + layer"]
    files = ["--train", tiny_world / "xx.train.conll", "--dev", tiny_world / "xx.dev.conll"]
    printed = run("tag_code_switched.py", *files, *beside, "--epochs", 1, "--out", tmp_path)
    assert "| HME + surface + layer | " in printed
    assert isinstance(
        pe.SequenceTagger.from_pretrained(tmp_path / "tagger").predict([["sol", "new"]])[0][1], str
    )
    with pytest.raises(SystemExit, match=r"--layer must be one of the model's 0 to 2, got 9"):
        run("tag_code_switched.py", *files, *beside, "--layer", 9, "--epochs", 1, "--out", tmp_path)


def test_layer_fusion(tiny_world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("accelerate")
    pytest.importorskip("peft")
    ways = ["--freeze", "frozen", "fine-tuned", "LoRA", "--branches", "both", "global"]
    options = ["--epochs", 1, "--batch-size", 6, "--out", tmp_path, *ways]
    files = files_of(tiny_world, "xx")
    targets = ["--language", "en", "--targets", f"de={files[-1]}", f"ru={files[-1]}"]
    printed = run("layer_fusion.py", *files, *targets, *pretraining(tiny_world), *options)
    assert (
        printed.count("| last layer ")
        == printed.count("| ScalarMix ")
        == printed.count("| D_2 ")
        == 6
    )
    assert "files, LoRA, accuracy" in printed
    assert "files, frozen, global branch, accuracy" in printed
    assert re.search(r"\| average +\| family +\| rest +\| en +\| de +\| ru ", printed)
    assert (tmp_path / "files" / "layers.png").stat().st_size > 10_000
    with pytest.raises(SystemExit):
        run("layer_fusion.py", *files, *pretraining(tiny_world), "--dev-size", 0)
    assert "--dev-size: must be at least 1, got 0" in capsys.readouterr().err


def test_layer_fusion_on_the_data_folder(
    data_folder: Path, tiny_world: Path, tmp_path: Path
) -> None:
    pytest.importorskip("accelerate")
    sizes = ["--train-size", 20, "--dev-size", 5, "--test-size", 5, "--parallel", 4]
    options = ["--epochs", 1, "--layers", 1, "--freeze", "frozen"]
    task = ["--task", "sagt-lid", "wikiann", "conll-nl", *sizes, "--out", tmp_path]
    printed = run("layer_fusion.py", *task, *pretraining(tiny_world), *options)
    assert re.search(
        r"\| system +\| parameters of the fusion \| average +\| family +\| rest ", printed
    )
    assert re.search(r"\| parameters of the fusion \| average +\| nl +\| es ", printed)
    assert printed.count("| layer 1 ") == printed.count("| LayerAverage ") == 3
    assert list((tmp_path / "wikiann").glob("features-*"))
    assert "| layer | retrieval | cosine | de " in printed
    assert (tmp_path / "parallel.png").stat().st_size > 10_000


def test_adapt_code_switched(tiny_world: Path, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    options = ["--epochs", 1, "--head-epochs", 1, "--out", tmp_path]
    printed = run(
        "adapt_code_switched.py",
        *files_of(tiny_world, "xx"),
        *pretraining(tiny_world),
        *options,
        "--shares",
        1.0,
    )
    assert "| 0 %   | 0 " in printed
    assert "| 100 % | 12 " in printed


def test_adapt_code_switched_on_the_data_folder(
    data_folder: Path, tiny_world: Path, tmp_path: Path
) -> None:
    pytest.importorskip("accelerate")
    sizes = [
        "--size-of-parts",
        8,
        "--switch-sentences",
        3,
        "--words",
        4,
        "--shares",
        1.0,
        "--epochs",
        1,
    ]
    options = ["--head-epochs", 1, "--out", tmp_path]
    printed = run(
        "adapt_code_switched.py",
        "--mix",
        "sagt",
        "hinglish",
        *sizes,
        *pretraining(tiny_world),
        *options,
    )
    for cell in ("at switches %", "POS", "NER", "sentiment"):
        assert f"| {cell} " in printed
    assert (tmp_path / "hinglish" / "words.png").stat().st_size > 10_000


LINCE_ROWS = {
    "pos_spaeng": [("sol", "spa", "NOUN"), ("sun", "eng", "NOUN"), (".", "eng&spa", "PUNCT")],
    "lid_spaeng": [("mar", "lang2"), ("sea", "lang1"), (".", "other")],
    "ner_spaeng": [("luz", "lang2", "O"), ("Sol", "ne", "B-LOC"), ("light", "lang1", "O")],
    "sa_spaeng": [("agua", "lang2"), ("water", "lang1")],
}


def write_spanglish(
    folder: Path, task: str, part: str, rows: list[tuple[str, ...]] | None = None
) -> Path:
    """Write a file of LinCE's layout: eight sentences, each with a word of its own."""
    sentences = []
    for number in range(8):
        sentiment = f"\t{'negative' if number % 2 else 'positive'}" if task == "sa_spaeng" else ""
        first, *others = rows or LINCE_ROWS[task]
        lines = [
            f"# sent_enum = {number}{sentiment}",
            *map("\t".join, [(f"{first[0]}{part}{number}", *first[1:]), *others]),
        ]
        sentences.append("\n".join(lines))
    path = folder / task / f"{part}.conll"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n\n".join(sentences) + "\n", "utf-8")
    return path


@pytest.fixture
def spanglish(tmp_path: Path) -> Path:
    """Write train and dev of LinCE's Spanglish tasks."""
    for task in LINCE_ROWS:
        for part in ("train", "dev"):
            write_spanglish(tmp_path, task, part)
    return tmp_path


def test_adapt_code_switched_on_lince(spanglish: Path, tiny_world: Path) -> None:
    pytest.importorskip("accelerate")
    options = [
        "--lince",
        spanglish,
        "--epochs",
        1,
        2,
        "--shares",
        1.0,
        "--head-epochs",
        1,
        "--words",
        4,
    ]
    options += ["--mask-switches", "--loss", "weighted", "--out", spanglish / "out"]
    printed = run("adapt_code_switched.py", *options, *pretraining(tiny_world))
    cells = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in printed.splitlines()
        if line[:1] == "|"
    ]
    assert [row[:3] for row in cells if row[0].endswith("%")] == [
        ["0 %", "0", "0"],
        ["100 %", "32", "1"],
        ["100 %", "32", "2"],
    ]
    settings = [["0 %", "0"], ["100 %", "1"], ["100 %", "2"]]
    heads = [row for row in cells if row[0] in ("POS", "LID", "NER", "sentiment")]
    assert [row[:3] for row in heads] == [
        [task, *one] for task in ("POS", "LID", "NER", "sentiment") for one in settings
    ]
    assert all(0 <= float(cell) <= 100 for row in heads for cell in row[3:])
    assert ["task", "text", "epochs", "accuracy", "F1", "precision", "recall"] in cells


def test_lince_is_one_mix(spanglish: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mixes = load("_mixes", monkeypatch)
    (spanglish / "sa_spaeng" / "train.conll").write_text(
        (spanglish / "lid_spaeng" / "dev.conll").read_text("utf-8")
    )
    with pytest.raises(SystemExit, match=r"train\.conll must have labels for sa_spaeng, got none$"):
        mixes.load_lince(spanglish)
    dev = (
        (spanglish / "lid_spaeng" / "dev.conll")
        .read_text("utf-8")
        .replace("# sent_enum = 0", "# sent_enum = 0\tpositive")
    )
    (spanglish / "sa_spaeng" / "train.conll").write_text(
        dev.split("\n\n")[0] + "\n\n" + dev.split("\n\n")[0]
    )
    (spanglish / "sa_spaeng" / "dev.conll").write_text(dev.split("\n\n")[0])
    mix = mixes.load_lince(spanglish)
    assert [len(part) for part in mix.tasks["POS"].parts] == [7, 1, 8]
    assert len(mix.train) == 24, "a sentence of a test is not adapted to"
    assert mix.train[0].languages == ("lang2", "lang1", "eng&spa")
    assert mix.dev == mix.tasks["LID"].parts[2]


@pytest.mark.parametrize(
    ("task", "part", "rows", "message"),
    [
        (
            "ner_spaeng",
            "train",
            "pos_spaeng",
            r"train\.conll:2 must have an entity's tag for ner_spaeng, got 'NOUN'",
        ),
        (
            "pos_spaeng",
            "dev",
            "ner_spaeng",
            r"dev\.conll:3 must have a part of speech for pos_spaeng, got 'B-LOC'",
        ),
        (
            "lid_spaeng",
            "train",
            "pos_spaeng",
            r"train\.conll:2 must have 2 or 1 columns for lid_spaeng|1 or 2 columns",
        ),
        ("lid_spaeng", "dev", "sa_spaeng", None),
        (
            "pos_spaeng",
            "dev",
            [("sol", "spa", "NUON")],
            r"dev\.conll must have labels of train, .*, got \['NUON'\]$",
        ),
        (
            "pos_spaeng",
            "train",
            [("sol", "spa")],
            r"pos_spaeng/train\.conll must have labels for pos_spaeng, got none$",
        ),
    ],
)
def test_lince_files_that_are_wrong(
    spanglish: Path,
    monkeypatch: pytest.MonkeyPatch,
    task: str,
    part: str,
    rows: object,
    message: str | None,
) -> None:
    if message is None:
        shutil.copy(spanglish / "sa_spaeng" / "dev.conll", spanglish / task / f"{part}.conll")
        message = r"dev\.conll:1 must have no sentiment for lid_spaeng, got 'positive'$"
    else:
        write_spanglish(spanglish, task, part, LINCE_ROWS[rows] if isinstance(rows, str) else rows)
    with pytest.raises(SystemExit, match=message):
        load("_mixes", monkeypatch).load_lince(spanglish)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epochs", "0"], r"--epochs: must be at least 1, got 0"),
        (["--shares", "1.5"], r"--shares must be in \(0, 1\], got \[1\.5\]"),
        (
            ["--lince", "nowhere"],
            r"path must name a file, got nothing at .*nowhere/pos_spaeng/train\.conll",
        ),
        (
            ["--mask-switches"],
            r"--mask-switches must have a language for each word, got none in files",
        ),
        (
            ["--metric", "f1", "recipe"],
            r"codeswitch2025\.heads must have keys among .*, got 'warmup'",
        ),
    ],
)
def test_adaptation_that_is_wrong(
    options: list[str],
    message: str,
    tiny_world: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    example = load("adapt_code_switched", monkeypatch)
    if "recipe" in options:
        options.remove("recipe")
        monkeypatch.setitem(example.RECIPE["heads"], "warmup", 1)
    files = [] if "--lince" in options else map(str, files_of(tiny_world, "xx"))
    monkeypatch.setattr(sys, "argv", ["adapt_code_switched.py", *files, *options])
    with pytest.raises(SystemExit) as error:
        example.main()
    assert re.search(message, f"{error.value} {capsys.readouterr().err}")


def test_losses_of_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    make = load("adapt_code_switched", monkeypatch).make_loss
    labels, names = ["O", "O", "O", "B-LOC"], ["B-LOC", "O"]
    assert make("cross-entropy", labels, names).weights is None
    assert make("weighted", labels, names).weights.tolist() == pytest.approx([2, 2 / 3])
    assert make("focal", labels, names).gamma == 2.0


SENTENCE_WORDS = {
    "en": ["the", "sun", "sea", "light", "day", "water", "Ann", "Rome", "is", "in"],
    "es": ["el", "sol", "mar", "luz", "día", "agua", "Ann", "Roma", "es", "en"],
    "nl": ["de", "zon", "zee", "licht", "dag", "water", "Ann", "Rome", "is", "in"],
}


def write_conll(path: Path, count: int) -> list[TaggedSentence]:
    sentences = load_sample("es-en", "train")[:count]
    rows = (
        "".join(f"{word}\t{tag}\n" for word, tag in zip(s.words, s.tags, strict=True))
        for s in sentences
    )
    path.write_text("\n".join(rows), "utf-8")
    return sentences


LINCE = ["--format", "lince", "--format-option", "task=ner_spaeng"]


def write_lince(folder: Path) -> None:
    """Write a file of LinCE's entities, and a test file, which has no labels."""
    rows = [[("Ana", "ne", "B-PER"), ("is", "lang1", "O"), ("aquí", "lang2", "O")]] * 6
    for name, columns in (("ner.lince", 3), ("test.lince", 2)):
        text = "\n".join(
            "".join("\t".join(row[:columns]) + "\n" for row in sentence) for sentence in rows
        )
        (folder / name).write_text(text, "utf-8")


def test_a_test_file_without_labels_is_tagged(tmp_path: Path) -> None:
    write_lince(tmp_path)
    files = ["--train", tmp_path / "ner.lince", "--test", tmp_path / "test.lince", *LINCE]
    printed = run(
        "tag_code_switched.py", *files, "--systems", "HME", "--epochs", 1, "--out", tmp_path / "out"
    )
    assert "| no labels |" in printed
    predictions = (tmp_path / "out" / "predictions.txt").read_text("utf-8").split("\n\n")
    assert [len(sentence.split()) for sentence in predictions] == [3] * 6
    assert set(" ".join(predictions).split()) <= {"O", "B-PER"}


def test_examples_over_an_encoder_read_lince(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lince(tmp_path)
    files = load("_files", monkeypatch)
    parser = argparse.ArgumentParser()
    files.add_file_arguments(parser, "a task")
    named = [
        value for part in ("train", "dev") for value in (f"--{part}", str(tmp_path / "ner.lince"))
    ]
    read = files.read_all_files(
        parser, parser.parse_args([*named, "--test", str(tmp_path / "ner.lince"), *LINCE]), tmp_path
    )
    assert [len(part) for part in read] == [6, 6, 6]
    columns = parser.parse_args(["--format-option", "tag_column=-2", "task=ner_spaeng"])
    assert files.format_options(columns) == {"tag_column": -2, "task": "ner_spaeng"}
    arguments = parser.parse_args([*named, "--test", str(tmp_path / "test.lince"), *LINCE])
    with pytest.raises(SystemExit, match=r"^--test \(.*test\.lince\) must have labels, got none"):
        files.read_all_files(parser, arguments, tmp_path)


def run_main(example: ModuleType, monkeypatch: pytest.MonkeyPatch, *options: object) -> str:
    """Run the loaded example's `main`, whose recipes a test may have made small."""
    printed = io.StringIO()
    monkeypatch.setattr(sys, "argv", ["tag_code_switched.py", *map(str, options)])
    with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
        warnings.simplefilter("ignore")
        example.main()
    return printed.getvalue()


@pytest.fixture
def small_paper(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example with the paper's recipe at sizes that a test can wait for."""
    example = load("tag_code_switched", monkeypatch)
    paper = example.RECIPES["winata2021"]
    tiny = {"hidden_size": 8, "num_heads": 2}
    for section, sizes in {
        "scratch": tiny,
        "encoder": {**tiny, "num_layers": 1, "feed_forward_size": 8},
        "embedder": {"embedding_dim": 8, "characters": 8, "character_dim": 8},
        "pieces": {"num_heads": 2, "feed_forward_size": 8},
    }.items():
        for key, value in sizes.items():
            monkeypatch.setitem(paper[section], key, value)
    return example


def test_the_papers_other_systems_over_two_tasks(
    small_paper: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Table 4: parameters and scores of entities (F1) and parts of speech (accuracy), and their mean."""
    for task, tag in (("ner_spaeng", "B-PER"), ("pos_spaeng", "NOUN")):
        (tmp_path / task).mkdir()
        rows = [("Ana", "ne", tag), ("is", "lang1", "O" if tag == "B-PER" else "VERB")]
        text = "\n".join("".join("\t".join(row) + "\n" for row in rows) for _ in range(6))
        for part in ("train", "dev"):
            (tmp_path / task / f"{part}.conll").write_text(text, "utf-8")
    encoder = tmp_path / "tiny-bert"
    tiny_model("bert").save_pretrained(encoder)
    word_piece_tokenizer().save_pretrained(encoder)
    systems = ("HME-Ensemble", "Scratch (2L)", "Scratch (6L)", str(encoder))
    options = [
        "--format",
        "lince",
        "--tasks",
        tmp_path / "ner_spaeng",
        tmp_path / "pos_spaeng",
        "--systems",
        *systems,
    ]
    options += [
        "--model",
        encoder,
        "--tokenizer",
        encoder,
        "--members",
        2,
        "--recipe",
        "winata2021",
        "--epochs",
        1,
    ]
    printed = run_main(small_paper, monkeypatch, *options, "--out", tmp_path / "out")
    table = printed[printed.rindex("| system ") :].splitlines()
    columns = ["system", "average", "ner_spaeng parameters", "ner_spaeng f1"]
    columns += ["pos_spaeng parameters", "pos_spaeng accuracy"]
    assert [cell.strip() for cell in table[0].strip("|").split("|")] == columns
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:6]]
    assert tuple(row[0] for row in cells) == systems
    for row in cells:
        assert float(row[1]) == pytest.approx((float(row[3]) + float(row[5])) / 2, abs=0.01)
    two, six = (int(row[2].replace(",", "")) for row in cells[1:3])
    layer = 4 * (8 * 8 + 8) + 2 * 8 * 32 + 32 + 8 + 4 * 8
    assert six - two == 4 * layer
    assert (tmp_path / "out" / "ner_spaeng" / "tagger").is_dir()


def test_the_rate_of_pretrained_encoders_decays(small_paper: ModuleType) -> None:
    options = small_paper.make_options(
        small_paper.RECIPES["winata2021"]["pretrained_training"], "f1", 0
    )
    optimizer = options.optimizer(torch.nn.Linear(2, 2))
    schedule = options.scheduler(optimizer)
    optimizer.step()
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(3e-5 * 0.9)
    assert (options.scheduler_interval, options.batch_size, options.patience) == ("epoch", 8, 10)


def test_large_encoders_keep_their_tables(
    small_paper: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_model("bert").save_pretrained(tmp_path)
    word_piece_tokenizer().save_pretrained(tmp_path)
    table = "model.embeddings.word_embeddings.weight"
    assert dict(small_paper.build_encoder(str(tmp_path), argparse.Namespace()).named_parameters())[
        table
    ].requires_grad
    monkeypatch.setitem(small_paper.RECIPES["winata2021"]["pretrained"], "large", 4)
    large = dict(small_paper.build_encoder(str(tmp_path), argparse.Namespace()).named_parameters())
    assert not large[table].requires_grad
    assert large["model.encoder.layer.0.output.dense.weight"].requires_grad


def test_hindi_in_devanagari(
    small_paper: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The saved tagger spells words itself, and leaves English ones alone."""
    (tmp_path / "pairs.tsv").write_text("kam\tकाम\t3\nnam\tनाम\t1\n", "utf-8")
    rows = [("kam", "hi", "NOUN"), ("song", "en", "NOUN"), ("@ana", "rest", "X")] * 2
    (tmp_path / "train.conll").write_text(
        "\n".join(["\n".join("\t".join(row) for row in rows) + "\n"] * 6), "utf-8"
    )
    trained = small_paper.CharacterTransliterator.for_pairs(
        [("kam", "काम")], hidden_size=8, num_layers=1, num_heads=2
    )
    asked: list[object] = []
    monkeypatch.setattr(
        trained, "transliterate", lambda words: ["काम" for _ in words], raising=False
    )
    monkeypatch.setattr(
        small_paper, "train_transliterator", lambda pairs: asked.extend(pairs) or trained
    )
    options = [
        "--train",
        tmp_path / "train.conll",
        "--format",
        "lince",
        "--format-option",
        "task=pos_hineng",
        "--languages",
        "hi",
        "en",
    ]
    options += [
        "--recipe",
        "winata2021",
        "--systems",
        "FastText (ML)",
        "--epochs",
        1,
        "--out",
        tmp_path / "out",
    ]
    run_main(small_paper, monkeypatch, *options, "--transliterate", tmp_path / "pairs.tsv")
    assert asked == [("kam", "काम"), ("nam", "नाम")]
    tagger = pe.SequenceTagger.from_pretrained(tmp_path / "out" / "tagger")
    assert tagger.prepared([["Kam", "Song", "@ana"]]) == [["काम", "Song", "<USR>"]]
    assert isinstance(tagger.prepare[0], small_paper.Speller)


def test_own_data_and_a_tagger_for_another_project(tmp_path: Path) -> None:
    """What a newcomer does after the demo: own files without languages, then the folder alone, somewhere else."""
    sentences = write_conll(tmp_path / "train.conll", 9)
    options = ("--systems", "Attention (MME)", "--epochs", 1, "--out", tmp_path / "out")
    printed = run("tag_code_switched.py", "--train", tmp_path / "train.conll", *options)
    assert "8 / 1 / 1 sentences" in printed
    assert (tmp_path / "out" / "attention-mme.png").stat().st_size > 1000
    elsewhere = tmp_path / "elsewhere"
    shutil.move(tmp_path / "out" / "tagger", elsewhere)
    tags = pe.SequenceTagger.from_pretrained(elsewhere).predict([["me", "x"]])
    assert len(tags[0]) == 2
    assert set(tags[0]) <= {tag for sentence in sentences for tag in sentence.tags}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--train nowhere.conll", "path must name a file, got nothing at "),
        (
            "--train one.conll",
            "--train must hold sentences to train on and to develop on, got 1: give --dev",
        ),
        ("--train two.conll --format word", "format must be one of 'conll', "),
        (
            "--train two.conll --format-option column",
            "--format-option must be NAME=VALUE, got 'column'",
        ),
        ("--train two.conll --format-option colour=2", "unexpected keyword argument 'colour'"),
        ("--train two.conll --languages es", "--languages must name two or more, got ['es']"),
        (
            "--train two.conll --languages es es",
            "--languages must name each language once, got ['es', 'es']",
        ),
        ("--systems FastTxt", "--systems must be among ['FastText (ML)', "),
        ("--tasks . --train two.conll", "--tasks must not come with --train, --dev or --test"),
        ("--tasks .", "must have one file train.*, got none"),
        ("--tasks nowhere", "there must be something at nowhere"),
        ("--members 0", "argument --members: must be at least 1, got 0"),
        (
            "--model nowhere",
            "nowhere must be a checkpoint, or --tokenizer a tokenizer, that opens: ",
        ),
        (
            "--transliterate words.txt",
            "--transliterate: words.txt must have two words and a tab between in each line",
        ),
        (
            "--published task",
            "--published task must come with a task of ['hineng', 'msaea', 'spaeng'], got 'none'",
        ),
        ("--test two.conll", "--dev and --test must come with --train"),
        ("--train two.conll --test ner.lince", "--test (ner.lince) must have labels of --train, ["),
        (
            "--train ner.lince --format lince --format-option task=pos_spaeng",
            "must have a part of speech for pos_spaeng",
        ),
        (
            "--train test.lince --format lince --format-option task=ner_spaeng",
            "--train (test.lince) must have labels, got",
        ),
        (
            "--train pairs.tsv",
            "--train (pairs.tsv) must have one word a line with its tag, not texts, got 'the sun'",
        ),
        (
            "--train chunks.tsv",
            "--train (chunks.tsv) must have tags without spaces, one word a line, got 'el sol'",
        ),
    ],
)
def test_own_data_that_is_wrong(
    options: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "huggingface_hub.constants.HF_HUB_OFFLINE", True
    )  # a name is not asked for again and again
    write_conll(tmp_path / "one.conll", 1)
    write_conll(tmp_path / "two.conll", 2)
    write_lince(tmp_path)
    (tmp_path / "pairs.tsv").write_text("the sun\tel sol\nthe sea\tel mar\n")
    (tmp_path / "words.txt").write_text("kam\n")
    (tmp_path / "chunks.tsv").write_text("sun\tel sol\nsea\tmar\n")
    monkeypatch.setattr(sys, "argv", ["tag_code_switched.py", *options.split()])
    with pytest.raises(SystemExit) as error:
        load("tag_code_switched", monkeypatch).main()
    assert message in f"{error.value} {capsys.readouterr().err}"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("encoder", r"small\.encoder must have keys among .*'hidden_size'.*, got 'hiden_size'"),
        (None, r"small must have"),
    ],
)
def test_a_recipe_with_a_wrong_key(
    section: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = load("tag_code_switched", monkeypatch)
    for name in ("small", "winata2021"):
        example.check_recipe(name, example.RECIPES[name])
    small = example.RECIPES["small"]
    monkeypatch.setitem(small if section is None else small[section], "hiden_size", {})
    monkeypatch.setattr(sys, "argv", ["tag_code_switched.py"])
    with pytest.raises(SystemExit, match=message):
        example.main()


def test_the_matrix_language(monkeypatch: pytest.MonkeyPatch) -> None:
    """By Winata 2021's table 1: English for Spanish-English entities, Spanish for its parts of speech."""
    order = load("tag_code_switched", monkeypatch).matrix_first
    assert order(["es", "en", "ca", "pt"], [], "ner_spaeng") == ["en", "es", "ca", "pt"]
    assert order(["es", "en", "ca", "pt"], [], "pos_spaeng") == ["es", "en", "ca", "pt"]
    train = [TaggedSentence(("a", "b", "c"), ("X", "X", "X"), ("en", "es", "en"))]
    assert order(["es", "en"], train, None) == ["en", "es"]
    assert order(["es", "en"], [], "lid_spaeng") == ["es", "en"]


def test_languages_of_files_with_language_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    """LinCE names them lang1 and lang2; vectors that are trained here read the words of each."""
    example = load("tag_code_switched", monkeypatch)
    monkeypatch.setattr(sys, "argv", ["tag_code_switched.py", "--train", "train.conll"])
    arguments = example.parse_arguments()
    train = [
        TaggedSentence(
            ("a", "b", "c", "d", "e"), ("X",) * 5, ("lang1", "lang2", "lang2", "other", "other")
        )
    ]
    assert example.languages_of(arguments, train) == ["lang2", "lang1"]
    assert example.words_of_language(train, "lang2") == [["b", "c", "d", "e"]]
    plain = [TaggedSentence(("a", "b"), ("X", "X"))]
    assert example.languages_of(arguments, plain) == ["ML", "EL"]
    arguments.vectors = [Path("ml.vec"), Path("el.vec")]
    assert example.languages_of(arguments, train) == ["ML", "EL"]
    assert example.words_of_language(train, "ML") == [["a", "b", "c", "d", "e"]]
    assert example.words_of_language(plain, "ML") == [["a", "b"]]


def test_the_papers_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    example = load("tag_code_switched", monkeypatch)
    sentence = TaggedSentence(
        ("@ana", "mira", "https://x.co", "😂"), ("X",) * 4, ("other", "es", "other", "other")
    )
    (found,) = example.prepared(
        [sentence], [pe.Normalizer(**example.RECIPES["winata2021"]["normalizer"])]
    )
    assert found.words == ("<USR>", "mira", "<URL>", "<EMOJI>")
    assert (found.tags, found.languages) == (sentence.tags, sentence.languages)


@pytest.fixture(scope="module")
def parallel_world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs of three languages, word for word, tagged sentences and raw text of two, and test pairs for retrieval."""
    folder = tmp_path_factory.mktemp("parallel")
    order = random.Random(0)

    def sentences(count: int) -> list[list[int]]:
        return [[order.randrange(10) for _ in range(order.randint(3, 7))] for _ in range(count)]

    def texts(rows: list[list[int]], language: str) -> list[str]:
        return [
            " ".join(SENTENCE_WORDS[language][i] for i in row) + f" {number}"
            for number, row in enumerate(rows)
        ]

    rows = sentences(200)
    for other in ("es", "nl"):
        lines = [
            "\t".join(pair) for pair in zip(texts(rows, "en"), texts(rows, other), strict=True)
        ]
        (folder / f"en-{other}.tsv").write_text("\n".join(lines), "utf-8")
        (folder / f"{other}.txt").write_text("\n".join(texts(rows, other)), "utf-8")
        for part in ("train", "dev", "test"):
            tagged = [[SENTENCE_WORDS[other][i] for i in row] for row in sentences(12)]
            names = {"Ann": "B-PER", "Rome": "B-LOC", "Roma": "B-LOC"}
            text = "\n\n".join(
                "\n".join(f"{word} {names.get(word, 'O')}" for word in words) for words in tagged
            )
            (folder / f"{other}.{part}.conll").write_text(text + "\n", "utf-8")
    test = [rows[0], *sentences(20)]  # the first is in the text, under the same number
    for side, language in (("spa", "es"), ("eng", "en")):
        (folder / f"tatoeba.spa-eng.{side}").write_text("\n".join(texts(test, language)), "utf-8")
    return folder


@pytest.fixture(scope="module")
def small_laser(parallel_world: Path) -> Path:
    """Pretrain a tiny encoder."""
    pytest.importorskip("sacremoses")
    folder = parallel_world / "encoder"
    options = [
        "--size",
        "tiny",
        "--text",
        parallel_world,
        "--tatoeba",
        parallel_world,
        "--max-steps",
        20,
    ]
    printed = run("pretrain_laser.py", *options, "--cache", folder)
    for row in ("en -> es", "es -> en", "nl -> en", "nl -> es", "es   "):
        assert f"| {row}" in printed
    assert printed == run(
        "pretrain_laser.py", *options, "--cache", folder
    )  # read, not trained again
    return folder


def test_pretrained_laser_opens(small_laser: Path) -> None:
    sentences = LaserSentences.from_pretrained(small_laser)
    released = LaserEncoder.from_checkpoint(small_laser / "laser.pt")
    assert released.dictionary is not None
    assert released.dictionary.pieces() == sentences.tokenizer.dictionary.pieces()
    vectors = sentences.encode(["el sol", "the sun", ""])
    pieces = sentences.tokenizer.text_pieces(["el sol"])
    torch.testing.assert_close(released(pieces.piece_ids, pieces.piece_mask), vectors[:1])
    words = pe.encoders.LaserTop(sentences.encoder, sentences.tokenizer)
    assert words(words.encode([["el", "sol"]])[0]).shape == (1, 2, 16)
    assert (small_laser / "laser.spm").stat().st_size > 1000
    report = json.loads((small_laser / "report.json").read_text("utf-8"))
    assert report["left_out"]["tatoeba"] > 0
    assert report["directions"]["en -> es"]["after"] < report["directions"]["en -> es"]["before"]
    assert not (small_laser / "training").exists()


def test_pretraining_goes_on(
    parallel_world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was killed comes to the very weights of one that was not."""
    pytest.importorskip("sacremoses")
    example = load("pretrain_laser", monkeypatch)
    monkeypatch.setattr(example, "SAVE_STEPS", 2)
    options = {
        "text": parallel_world,
        "tatoeba": parallel_world,
        "max_steps": 5,
        "progress": False,
        "device": "cpu",
    }
    whole = example.pretrain_laser("tiny", cache=tmp_path / "whole", **options)
    save = torch.save
    saved = []

    def killed(state: object, path: Path) -> None:
        saved.append(path)
        if len(saved) == 2:
            raise KeyboardInterrupt
        save(state, path)

    monkeypatch.setattr(torch, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        example.pretrain_laser("tiny", cache=tmp_path / "cut", **options)
    monkeypatch.setattr(torch, "save", save)
    with pytest.raises(
        ValueError, match="cache must hold a training of these settings, got another"
    ):
        example.pretrain_laser("tiny", cache=tmp_path / "cut", **(options | {"seed": 1}))
    checkpoint = tmp_path / "cut" / "training" / "checkpoint.pt"
    good = checkpoint.read_bytes()
    checkpoint.write_bytes(good[:1000])
    with pytest.raises(ValueError, match=r"checkpoint\.pt must be a checkpoint, got "):
        example.pretrain_laser("tiny", cache=tmp_path / "cut", **options)
    checkpoint.write_bytes(good)
    cut = example.pretrain_laser("tiny", cache=tmp_path / "cut", **options)
    first, second = (
        LaserSentences.from_pretrained(folder).encoder.state_dict() for folder in (whole, cut)
    )
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
    reports = [json.loads((folder / "report.json").read_text("utf-8")) for folder in (whole, cut)]
    assert reports[0]["losses"] == reports[1]["losses"]
    assert reports[0]["tokens_seen"] == reports[1]["tokens_seen"]
    with pytest.raises(ValueError, match="cache must hold an encoder of these settings"):
        example.pretrain_laser("tiny", cache=tmp_path / "cut", **(options | {"seed": 1}))


@pytest.mark.parametrize("protocol", ["zero_shot", "joint"])
def test_laser_zero_shot(
    parallel_world: Path, small_laser: Path, tmp_path: Path, protocol: str
) -> None:
    sources = [
        "--encoder",
        small_laser,
        "--data",
        parallel_world,
        "--text",
        parallel_world,
        "--sources",
        "es",
    ]
    systems = ["--search", 1, "--adam", "--freeze", "all"] if protocol == "joint" else []
    systems += ["--systems", "MUSE", "LaserTop"] if protocol == "joint" else []
    options = [
        "--protocols",
        protocol,
        "--epochs",
        1,
        "--seeds",
        1,
        "--dim",
        8,
        "--folder",
        tmp_path,
    ]
    printed = run("laser_zero_shot.py", *sources, *systems, *options)
    names = (
        ["MUSE", "LaserTop"]
        if systems
        else ["MUSE", "BPEBow", "BPEGRU", "LSTM", "LaserTop", "LaserElmo"]
    )
    table = printed[printed.index("###") :]
    assert [line.split()[1] for line in table.splitlines() if line.startswith("|")][
        2 : 2 + len(names)
    ] == names
    if protocol == "zero_shot":
        for title in (
            "ner trained on es, sign test against LaserTop",
            "nl trained on es, confusion of B, I and O",
        ):
            assert f"### {title}\n" in table
        assert "nl trained on es, entities that LaserTop gets right and MUSE wrong: " in table
        again = run("laser_zero_shot.py", *sources, *systems, *options)
        assert again[again.index("###") :] == table
    else:
        assert (tmp_path / "ner" / "gain_es.png").stat().st_size > 10_000
        assert "LaserTop on es: {'input_dropout': " in printed
        assert "MUSE on es: " not in printed  # the paper tunes no baseline
    assert len(list((tmp_path / "ner").glob("*.md"))) == (4 if protocol == "zero_shot" else 3)


def laser_data(
    folder: Path, monkeypatch: pytest.MonkeyPatch, task: str = "ner", **options: object
) -> list[Corpus]:
    """Read the files of a folder as the LASER example does."""
    found = {
        "languages": ["en", "de"],
        "sources": None,
        "sentences": None,
        "dev": None,
        "test": None,
        **options,
    }
    arguments = argparse.Namespace(
        data=[folder / "nowhere", folder], task=task, **{"normalize": True, **found}
    )
    return load("_conll", monkeypatch).read_corpora(arguments)


@pytest.fixture
def conll2003(tmp_path: Path) -> Path:
    """Write English and German files as CoNLL-2003 has them, with IOB1 entities."""
    english = "-DOCSTART- -X- -X- O\n\nAnn NNP I-NP I-PER\n“Bo NN|SYM I-NP B-PER\n"
    german = "-DOCSTART- -X- -X- -X- O\n\nIn in APPR B-PC O\nÖls Öls NE I-NC I-PER\n"
    for end in ("train", "testa", "testb"):
        (tmp_path / f"eng.{end}").write_text(english, "utf-8")
        (tmp_path / f"deu.{end}").write_text(german, "utf-8")
    return tmp_path


def test_english_and_german_of_the_shared_task(
    conll2003: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    en, de = laser_data(conll2003, monkeypatch)
    assert en.train == en.test == [TaggedSentence(("ann", '"bo'), ("B-PER", "B-PER"))]
    assert de.dev == [TaggedSentence(("in", "öls"), ("O", "B-PER"))]
    en, de = laser_data(conll2003, monkeypatch, "pos", normalize=False)
    assert en.train == [TaggedSentence(("Ann", "“Bo"), ("NOUN", "NOUN"))]
    assert de.train == [TaggedSentence(("In", "Öls"), ("ADP", "NOUN"))]


def test_a_language_that_is_only_tested(conll2003: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (conll2003 / "eu.test.conll").write_text("Ane I-PER\n\nez O\n", "utf-8")
    corpora = laser_data(conll2003, monkeypatch, languages=["en", "eu"], test=1)
    assert corpora[1] == Corpus("eu", [], [], [TaggedSentence(("ane",), ("B-PER",))])
    with pytest.raises(
        SystemExit, match=r"^--sources must have files to train and to develop on, got \['eu'\]"
    ):
        laser_data(conll2003, monkeypatch, languages=["en", "eu"], sources=["en", "eu"])
    with pytest.raises(SystemExit, match=r"^--data must have a test file of 'hu', got none in \["):
        laser_data(conll2003, monkeypatch, languages=["en", "hu"])
    (conll2003 / "eu.test.conll").write_text("Ane B-WORK\n", "utf-8")
    rule = (
        r"^the files of 'eu' must have labels of those to train on, \['O', 'PER'\], got \['WORK'\]"
    )
    with pytest.raises(SystemExit, match=rule):
        laser_data(conll2003, monkeypatch, languages=["en", "eu"])
    (conll2003 / "eu.test.conll").write_text("Ane NOUN\n", "utf-8")
    with pytest.raises(
        SystemExit, match=r"eu\.test\.conll: labels must be O, B-<type> or I-<type>, got 'NOUN'"
    ):
        laser_data(conll2003, monkeypatch, languages=["en", "eu"])
    (conll2003 / "eng.train").write_text("Ann Q O O\n", "utf-8")
    with pytest.raises(SystemExit, match=r"eng\.train: tag must be one of "):
        laser_data(conll2003, monkeypatch, "pos")


@pytest.mark.parametrize("protocol", ["zero_shot", "joint"])
def test_laser_tests_a_language_without_training(
    parallel_world: Path, small_laser: Path, tmp_path: Path, protocol: str
) -> None:
    """Parts of speech, by accuracy and by the mean F1 of the tags."""
    for path in parallel_world.glob("*.conll"):
        text = (
            path.read_text("utf-8")
            .replace("B-PER", "NOUN")
            .replace("B-LOC", "NOUN")
            .replace(" O", " X")
        )
        (tmp_path / path.name).write_text(text, "utf-8")
    (tmp_path / "nl.test.conll").rename(tmp_path / "hu.test.conll")
    shutil.copy(tmp_path / "hu.test.conll", tmp_path / "nl.test.conll")
    options = [
        "--protocols",
        protocol,
        "--epochs",
        1,
        "--seeds",
        1,
        "--folder",
        tmp_path,
        "--data",
        tmp_path,
    ]
    systems = [
        "--encoder",
        small_laser,
        "--systems",
        "BPEBow",
        "--languages",
        "es",
        "nl",
        "hu",
        "--sources",
        "es",
    ]
    printed = run("laser_zero_shot.py", *options, *systems, "--task", "pos")
    title = "pos trained on es" if protocol == "zero_shot" else "pos joint A with es"
    for name in (title, f"{title}, mean F1 of the tags"):
        header = printed[printed.index(f"### {name}\n") :].splitlines()[2]
        assert header.replace(" ", "") == "|system|es|nl|hu|"


def test_the_papers_laser_is_the_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    example = load("laser_zero_shot", monkeypatch)
    for options, found in (
        ([], ("laser1", list(example.WORDS))),
        (["--model", "x"], (None, [])),
        (["--systems", "MUSE"], (None, ["MUSE"])),
        (["--systems", "LSTM", "--encoder", "laser2"], ("laser2", ["LSTM"])),
    ):
        monkeypatch.setattr(sys, "argv", ["laser_zero_shot.py", *options])
        arguments = example.parse_arguments()
        assert (arguments.encoder, arguments.systems) == found
        assert arguments.normalize


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--languages es es", "--languages must name each language once, got ['es', 'es']"),
        ("--vectors es", "--vectors must be LANG=FILE each, got ['es']"),
        (
            "--vectors es=es.vec --aligned",
            "--aligned must come with --vectors of every language, got none of ['nl']",
        ),
    ],
)
def test_wrong_options_of_the_laser_example(
    options: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["laser_zero_shot.py", *options.split()])
    with pytest.raises(SystemExit):
        load("laser_zero_shot", monkeypatch).parse_arguments()
    assert message in capsys.readouterr().err


def test_vectors_of_one_space_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MUSE's own files are aligned: a rotation by identical words would move them."""
    example = load("laser_zero_shot", monkeypatch)
    for language, text in (("es", "sol 1 0\nno 0 1\n"), ("nl", "zon 1 0\nno 1 1\n")):
        (tmp_path / f"{language}.vec").write_text(text)
    corpora = [Corpus(language, [], [], []) for language in ("es", "nl")]
    vectors = [f"{language}={tmp_path / language}.vec" for language in ("es", "nl")]
    for aligned in (False, True):
        options = ["--vectors", *vectors, *(["--aligned"] if aligned else [])]
        monkeypatch.setattr(sys, "argv", ["laser_zero_shot.py", *options])
        joined = example.aligned_vectors(corpora, example.parse_arguments())
        assert (joined.vectors(["zon", "no"]).tolist() == [[1, 0], [0, 1]]) is aligned


def test_static_vectors_of_a_language_without_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = load("laser_zero_shot", monkeypatch)
    monkeypatch.setattr(
        sys, "argv", ["laser_zero_shot.py", "--folder", str(tmp_path), "--text", str(tmp_path)]
    )
    with pytest.raises(
        SystemExit, match=r"^--vectors must name vectors of 'eu', which has no text"
    ):
        example.open_vectors("eu", example.parse_arguments(), [])
    (tmp_path / "eu.txt").write_text("“Bai”, Ez!\n" * 9, "utf-8")
    vectors = example.open_vectors("eu", example.parse_arguments(), [])
    assert "bai" in vectors
    assert "Bai" not in vectors


def test_pretraining_in_half_precision(
    parallel_world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sacremoses")
    example = load("pretrain_laser", monkeypatch)
    options = {
        "text": parallel_world,
        "tatoeba": tmp_path,
        "max_steps": 6,
        "progress": False,
        "device": "cpu",
    }
    reports = {}
    for bf16, stop_at in ((False, None), (True, None), (False, 3)):
        folder = tmp_path / f"{bf16} {stop_at}"
        try:
            example.pretrain_laser("tiny", cache=folder, bf16=bf16, stop_at=stop_at, **options)
        except RuntimeError as error:
            if not (bf16 and "primitive descriptor" in str(error)):
                raise
            pytest.skip("this processor runs no LSTM in bfloat16")
        reports[bf16, stop_at] = json.loads((folder / "report.json").read_text("utf-8"))
    assert reports[True, None]["losses"] == pytest.approx(reports[False, None]["losses"], rel=1e-2)
    assert reports[True, None]["losses"] != reports[False, None]["losses"]
    assert [report["steps"] for report in reports.values()] == [6, 6, 3]
    assert reports[False, None]["tatoeba"] == {}


@pytest.mark.slow
def test_translation_brings_sentences_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three languages that share no word: the nearest sentence is seldom the translation before, often after."""
    pytest.importorskip("sacremoses")
    example = load("pretrain_laser", monkeypatch)
    order = random.Random(0)
    words = {
        name: ["".join([name[0], *order.choices("abcdefgh", k=4)]) for _ in range(15)]
        for name in ("en", "es", "nl")
    }
    rows = [[order.randrange(15) for _ in range(order.randint(2, 4))] for _ in range(660)]
    texts = {
        name: [" ".join(theirs[i] for i in row) for row in rows] for name, theirs in words.items()
    }
    for name, code in (("es", "spa"), ("nl", "nld")):
        pairs = zip(texts["en"][:600], texts[name][:600], strict=True)
        (tmp_path / f"en-{name}.tsv").write_text("\n".join(map("\t".join, pairs)))
        for end, language in ((code, name), ("eng", "en")):
            (tmp_path / f"tatoeba.{code}-eng.{end}").write_text("\n".join(texts[language][600:]))
    recipe = {
        "tokenizer": {"vocab_size": 120},
        "encoder": {"embedding_dim": 32, "hidden_size": 32, "num_layers": 1},
        "decoder": {"embedding_dim": 16, "hidden_size": 48, "language_dim": 4},
        "training": example.RECIPES["tiny"]["training"]
        | {"num_train_epochs": 50, "learning_rate": 1e-2},
    }
    monkeypatch.setitem(example.RECIPES, "tiny", recipe)
    options = {
        "text": tmp_path,
        "tatoeba": tmp_path,
        "max_steps": 450,
        "progress": False,
        "device": "cpu",
    }
    folder = example.pretrain_laser("tiny", cache=tmp_path / "encoder", **options)
    errors = json.loads((folder / "report.json").read_text("utf-8"))["tatoeba"]
    for when in errors.values():
        assert min(when["before"]) > 85
        assert max(when["after"]) < 70


def test_listing_of_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entity is listed if the static system misses it with every seed and the contextual one never does."""
    example = load("laser_zero_shot", monkeypatch)
    gold = ["B-PER", "O", "B-LOC", "I-LOC", "B-ORG", "B-PER"]
    static = [["O", "O", "B-LOC", "O", "O", "B-PER"], ["O", "O", "O", "O", "B-ORG", "O"]]
    contextual = [
        ["B-PER", "O", "B-LOC", "I-LOC", "B-ORG", "B-PER"],
        ["B-PER", "O", "B-LOC", "I-LOC", "B-ORG", "O"],
    ]
    runs = []
    for system, tags in (("MUSE", static), ("LaserElmo", contextual)):
        for seed, row in enumerate(tags):
            training = FitResult(Epoch(1, 0.5, 0.7, 1.0), ())
            runs.append(SystemRun(system, seed, ("es",), training, {"nl": 0.0}, {"nl": [row]}))
    result = ProtocolResult(tuple(runs), {"nl": [gold]}, "f1")
    sentence = TaggedSentence(("Ann", "in", "New", "Rome", "Senate", "Bo"), tuple(gold))
    rows = example.wins(result, Corpus("nl", test=[sentence]), "MUSE", "LaserElmo")
    assert rows == [
        ("PER", "[ Ann ] in New Rome Senate", "O"),
        ("LOC", "Ann in [ New Rome ] Senate Bo", "B-LOC O"),
    ]


def test_laser_examples_on_the_data_folder(data_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("sacremoses")
    options = ["--size", "tiny", "--languages", "en", "es", "nl", "--lines", 60, "--max-steps", 3]
    printed = run("pretrain_laser.py", *options, "--cache", tmp_path / "encoder")
    assert "| nl " in printed
    task = ["--task", "pos", "--encoder", tmp_path / "encoder", "--sources", "nl"]
    systems = ["--systems", "BPEBow", "LaserElmo"]
    sizes = [
        "--sentences",
        20,
        "--dev",
        10,
        "--test",
        10,
        "--epochs",
        1,
        "--seeds",
        1,
        "--folder",
        tmp_path,
    ]
    printed = run("laser_zero_shot.py", *task, *systems, *sizes)
    assert "| LaserElmo | " in printed
