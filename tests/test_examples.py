"""The examples, on small files made here; `make demo` runs the main one on the sample."""

import argparse
import contextlib
import io
import json
import random
import re
import shlex
import sys
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import _laser
import _metaxl
import _mixes
import adapt_code_switched
import align_embeddings
import annotate_next
import laser_zero_shot
import layer_fusion
import metaxl_ner
import metaxl_sentiment
import pretrain_laser
import pytest
import romanised_vectors
import tag_code_switched
import torch
from _conll import read_corpora
from checks import refused
from tiny_models import tiny_model, word_piece_tokenizer

import polyembed as pe
from polyembed.data import TaggedSentence
from polyembed.encoders import LaserEncoder, LaserSentences
from polyembed.evaluation import Corpus
from polyembed.vectors import OrthogonalMapping, TextVectors

PARTS = ("train", "dev", "test")


@contextlib.contextmanager
def command_line(command: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(sys, "argv", ["example.py", *shlex.split(command)])
        yield


def run(example: ModuleType, command: str) -> str:
    """Run an example by a command line and return its output."""
    with command_line(command), contextlib.redirect_stdout(io.StringIO()) as printed:
        example.main()
    return printed.getvalue()


def parsed(example: ModuleType, command: str) -> argparse.Namespace:
    with command_line(command):
        return example.parse_arguments()


def metaxl_options(command: str = "") -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    _metaxl.add_arguments(parser, _metaxl.RECIPES["ner"])
    return parser.parse_args(command.split())


def write(path: Path, sentences: Iterable[Iterable[Sequence[str]]], space: str = "\t") -> Path:
    """Write sentences as rows of columns, with one row per word."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n\n".join("\n".join(map(space.join, rows)) for rows in sentences)
    path.write_text(f"{text}\n", "utf-8")
    return path


def files_of(folder: Path, language: str, suffix: str = "conll") -> str:
    """Return the options that name the three parts of a language's corpus."""
    return " ".join(f"--{part} {folder}/{language}.{part}.{suffix}" for part in PARTS)


def cells_of(printed: str) -> list[list[str]]:
    """Return the rows of all printed tables."""
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def is_picture(path: Path) -> bool:
    return path.stat().st_size > 10_000


WORDS = {
    "xx": ["el", "la", "un", "sol", "mar", "luz", "día", "agua"],
    "yy": ["the", "a", "sun", "sea", "light", "day", "water"],
}


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """Write raw text, tagged and labelled sentences of two made-up languages, and a small BERT."""
    folder = tmp_path_factory.mktemp("world")
    order = random.Random(0)
    for language, words in WORDS.items():

        def sentence(words=words):
            return [order.choice(words) for _ in range(order.randint(3, 7))]

        lines = [" ".join([*sentence(), str(number)]) for number in range(300)]
        (folder / f"{language}.txt").write_text("\n".join(lines), "utf-8")
        for part in PARTS:
            rows = [
                [(word, "B-LOC" if word in ("sol", "sun") else "O") for word in sentence()]
                for _ in range(12)
            ]
            write(folder / f"{language}.{part}.conll", rows, " ")
            texts = [(order.choice("+-"), " ".join(word for word, _ in row)) for row in rows]
            write(folder / f"{language}.{part}.tsv", [texts])
    tiny_model("bert", num_hidden_layers=2).save_pretrained(folder / "bert")
    word_piece_tokenizer().save_pretrained(folder / "bert")
    return folder


@pytest.fixture(scope="module")
def wikiann(world, tmp_path_factory) -> Path:
    """Write the sentences of `world` in the layout of WikiAnn by Rahimi et al. 2019.

    The languages are two targets and Spanish.
    """
    folder = tmp_path_factory.mktemp("wikiann")
    for language, theirs in (("qu", "yy"), ("gn", "yy"), ("es", "xx")):
        (folder / language).mkdir()
        for part in PARTS:
            text = (world / f"{theirs}.{part}.conll").read_text("utf-8").replace(" ", "\t")
            rows = re.sub(r"^(?=.)", f"{language}:", text, flags=re.MULTILINE)
            (folder / language / part).write_text(f"{rows}\n", "utf-8")
    return folder


def pretraining(world: Path) -> str:
    """Return the same options for every example, so that all examples share one encoder."""
    kept = f"--pretrain xx yy --text {world} --cache {world}/encoder"
    return f"--size tiny {kept} --max-steps 3 --seeds 1"


@pytest.mark.parametrize("how", ["--train train.txt", "--method identical"])
def test_align_embeddings(how: str, tmp_path, monkeypatch):
    """One space is the other rotated, with noise, and ten strings are words of both languages."""
    monkeypatch.chdir(tmp_path)
    es = torch.randn(200, 7) * torch.linspace(0.5, 2, 7)
    turn = torch.linalg.qr(torch.randn(7, 7)).Q
    en = es @ turn + 0.05 * torch.randn(200, 7)
    names = [(f"e{i}", f"e{i}" if i < 10 else f"n{i}") for i in range(200)]
    for language, words, rows in zip(("es", "en"), zip(*names, strict=True), (es, en), strict=True):
        lines = [f"{word} {' '.join(map(str, row))}" for word, row in zip(words, rows.tolist())]  # noqa: B905
        Path(f"{language}.vec").write_text("\n".join(["200 7", *lines]))
    for name, pairs in (("train", [*names[:50], ("e1", "nobody")]), ("test", names[50:])):
        Path(f"{name}.txt").write_text("\n".join(map(" ".join, pairs)))
    printed = run(align_embeddings, f"es.vec en.vec {how} --test test.txt --out out")
    assert "150" in printed
    assert ("num_dropped: 1" in printed) == ("--train" in how)
    mapping = OrthogonalMapping.from_pretrained("out/mapping")
    torch.testing.assert_close(mapping.weight.detach(), turn, rtol=0, atol=0.05)
    found = pe.translation_accuracy(
        mapping(TextVectors("es.vec")), TextVectors("en.vec"), names[50:]
    )
    assert found.csls[1] > 0.9
    assert is_picture(Path("out/pairs.png"))


@pytest.mark.parametrize(
    ("example", "kind", "options", "rows"),
    [
        (
            metaxl_ner,
            "conll",
            "",
            "target only; JT; JT, concatenated; JT with RTN, layer 0; JT with RTN, layer 2; "
            "MetaXL, layer 0; MetaXL, layer 1; MetaXL, layer 2; MetaXL, layers 0 and 2",
        ),
        (metaxl_sentiment, "tsv", "--methods joint metaxl --layers 2", "JT; MetaXL, layer 2"),
        (
            metaxl_ner,
            "conll",
            "--authors --freeze-embeddings --methods joint_half metaxl --layers 2",
            "JT, half the target rows; MetaXL, layer 2",
        ),
    ],
)
def test_metaxl(example, kind: str, options: str, rows: str, world, tmp_path):
    pytest.importorskip("accelerate")
    files = f"--source-train {world}/xx.train.{kind} {files_of(world, 'yy', kind)}"
    options += f" --epochs 1 --batch-size 6 --out {tmp_path}"
    printed = run(example, f"{files} {pretraining(world)} {options}")
    assert {row for row in rows.split("; ") if f"| {row} " not in printed} == set()
    assert ("| 1000 " in printed) == (example is metaxl_sentiment or "--authors" in options)
    report = next(tmp_path.rglob("report.json"))
    runs = json.loads(report.read_text("utf-8"))["runs"]
    assert len(runs) == len(rows.split("; "))
    assert min(run["hausdorff"] for run in runs) > 0
    assert is_picture(report.parent / "clouds.png")


def test_metaxl_on_several_targets_goes_on_where_it_was_killed(world, wikiann, tmp_path):
    options = f"--related --wikiann {wikiann} --target qu gn --model {world}/bert --seeds 1"
    options += f" --epochs 1 --batch-size 6 --meta-learning-rate 1e-3 1e-5 --out {tmp_path}"
    options += " --methods joint metaxl --layers 2 --extend-vocabulary 60"
    printed = run(metaxl_ner, options)
    assert printed.count(" pieces in the extended vocabulary") == 2
    assert "| method          | source rows | qu " in printed
    assert "gain and drop" not in printed  # every correlation of two points is 1 or -1
    assert "12 source sentences, 12 of the target" in printed
    assert "| JT, 5000 source rows | qu " in printed  # the tests against MetaXL
    paths = {target: tmp_path / target / "report.json" for target in ("qu", "gn")}
    reports = {target: json.loads(path.read_text("utf-8")) for target, path in paths.items()}
    assert [one["rate"] for one in reports["gn"]["runs"]] == [None, 1e-3, 1e-5]
    del reports["qu"]["runs"][1:]
    for one, dev, test in zip(reports["gn"]["runs"], (10, 50, 51), (43.21, 99, 12.34), strict=True):
        one.update(dev=dev, test=test)
    for target, path in paths.items():
        path.write_text(json.dumps(reports[target]), "utf-8")
    printed = run(metaxl_ner, options)
    assert "JT, 5000 source rows: 43.21" in printed  # read, not trained
    assert "MetaXL, layer 2, 5000 source rows: 12.34" in printed  # the better rate on dev
    assert len(json.loads(paths["qu"].read_text("utf-8"))["runs"]) == 3
    refused(
        ValueError,
        r"^--out must hold runs of these settings, got others",
        run,
        metaxl_ner,
        f"{options} --epochs 2",
    )


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("metaxl", "metaxl 0.5 None"),
        ("printed", "metaxl 0.0 None"),
        ("joint_half", "joint 1.0 8"),
        ("joint_matched", "joint_rtn 1.0 8"),
    ],
)
def test_metaxl_methods_by_objective(method, expected, monkeypatch):
    def trainer(*parts, options, **others):
        found = f"{options.objective} {options.target_weight} {options.target_batch_size}"
        assert found == expected
        raise InterruptedError

    monkeypatch.setattr(_metaxl, "MetaXLTrainer", trainer)
    model = torch.nn.Linear(2, 2)
    model.embedder = torch.nn.Embedding(2, 4)
    # the network of MetaXL; the authors' joint training has another network
    assert _metaxl.make_network(model, method, metaxl_options("--authors")).residual
    options = metaxl_options("--target-weight 0.5")
    with pytest.raises(InterruptedError):
        _metaxl.train(model, [model], (0,), method, ([], []), 0, 1e-5, None, options)


def test_metaxl_leaves_the_table_of_pieces_fixed(monkeypatch):
    found = []
    monkeypatch.setattr(_metaxl, "load_encoder", lambda *names, freeze: found.append(freeze))
    for command in ("", "--freeze-embeddings"):
        _metaxl.build_encoder("x", 8, metaxl_options(command), [])
    assert found == ["none", "embeddings"]
    both = metaxl_options("--freeze-embeddings --extend-vocabulary 50")
    refused(SystemExit, "must have trained pieces", _metaxl.build_encoder, "x", 8, both, [])


SENTIPERS = "".join(
    f'<Sentence ID="r" Value="{value}">{text}</Sentence>'
    for value, text in (("+2", "خوب است"), ("-1", "بد"), ("0", "دو"), ("", "سه"), ("+1", "خوب است"))
)
EXTRA = "0\tچه\tT\n1\t\n2\tخوب\tOP\t\t0\n[+2]\n[@@@]\n0\tبد\n[-2]\n[@@@]\n0\t:|\n[0]\n[@@@]\n"
LINE = "__________________________\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {
                "marc.json": "\n".join(
                    f'{{"review_body": "x", "stars": "{n}"}}' for n in range(1, 6)
                )
            },
            "- x; - x; + x; + x",
        ),
        (
            {
                "data/extra/two.xml": EXTRA,
                "data/main/one.xml": f"<Product><Review>{SENTIPERS}</Review></Product>",
            },
            "+ چه خوب; - بد; + خوب است",
        ),
        (
            {"te/a_pos.txt": f"మంచి ఫోన్\nబాగుంది\n{LINE}మంచి\n", "te/a_neg.txt": f"చెడు\n{LINE}"},
            "+ మంచి ఫోన్ బాగుంది; + మంచి; - చెడు",
        ),
        (
            {
                "hu/camera.txt": "[t]title\nlens[+2][u], zoom[+]##good one\nlens[+2],zoom[-1]##both\n"
                "##no opinion\nflash[-3]##bad one\n"
            },
            "+ good one; - bad one",
        ),
        (
            {
                "one_conll.txt": "meta\t1\tneutral\nok\tEng\n\nmeta\t2\tnegative\nbura\tHin\n"
                "day\tEng\n"
            },
            "- bura day",
        ),
    ],
)
def test_sentiment_corpora(files: dict[str, str], expected: str, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    path = tmp_path / next(iter(files)).split("/")[0]
    signs = {"positive": "+", "negative": "-"}
    found = metaxl_sentiment.read_texts(path)
    assert "; ".join(" ".join([signs[text.label], *text.words]) for text in found) == expected
    if "##" in next(iter(files.values())):
        (tmp_path / "zipped").mkdir()
        with zipfile.ZipFile(tmp_path / "zipped" / "one.zip", "w") as archive:
            archive.writestr("reviews/camera.txt", next(iter(files.values())))
        assert metaxl_sentiment.read_texts(tmp_path / "zipped") == found


def test_sentiment_corpora_are_cut_as_the_paper_says():
    many = [metaxl_sentiment.Text((str(n),), "positive") for n in range(2200)]
    arguments = argparse.Namespace(dev=None, test=None, split="sentipers", target_size=100)
    parts = metaxl_sentiment.split(many, arguments)
    assert [len(parts[part]) for part in PARTS] == [100, 1000, 1000]
    assert len({text for texts in parts.values() for text in texts}) == 2100


def test_some_sentences_are_spread_over_the_whole_file():
    """Regression: a choice of 300 out of 578 sentences was the first 300."""
    rows = [TaggedSentence((str(i),), ("X",)) for i in range(578)]
    found = [int(row.words[0]) for row in layer_fusion.spread([*rows, TaggedSentence((), ())], 300)]
    assert len(found) == 300
    assert {second - first for first, second in pairwise(found)} == {1, 2}
    assert found[-1] > 574
    assert layer_fusion.spread(rows, None) == layer_fusion.spread(rows, 999) == rows


def test_annotate_next(world):
    files = (
        f"--train {world}/xx.train.conll --dev {world}/xx.dev.conll --test {world}/xx.test.conll"
    )
    printed = run(
        annotate_next, f"{files} --start 4 --count 2 --rounds 1 --epochs 1 --rules random diverse"
    )
    found = [" ".join(row[:2]) for row in cells_of(printed)[2:]]
    assert found == ["random 4", "random 6", "diverse 4", "diverse 6"]
    with pytest.raises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as error:
        run(annotate_next, f"{files} --start 4 --count 9999")
    assert "too few for so many rounds" in error.getvalue()


def test_the_annotator_reveals_what_the_rule_chose(monkeypatch):
    pool = [TaggedSentence((f"w{i}",), ("A" if i % 2 else "B",)) for i in range(12)]
    known = []
    monkeypatch.setattr(
        annotate_next.pe, "fit", lambda tagger, train, *_, **__: known.append(train)
    )
    monkeypatch.setattr(annotate_next, "choose", lambda rule, tagger, pool, count: [3, 1])
    arguments = argparse.Namespace(seed=0, start=4, count=2, rounds=2, epochs=None)
    rounds = annotate_next.Annotator(pool, pool, pool, arguments).rounds("entropy")
    order = random.Random(0).sample(pool, 12)
    first, rest = order[:4], order[4:]
    left = [rest[i] for i in (0, 2, 4, 5, 6, 7)]
    assert known == [
        first,
        [*first, rest[3], rest[1]],
        [*first, rest[3], rest[1], left[3], left[1]],
    ]
    assert [(count, words) for count, words, _ in rounds] == [(4, 4), (6, 6), (8, 8)]


def test_the_annotator_reads_sets_and_missing_tags(tmp_path):
    path = tmp_path / "some.conll"
    path.write_text("a B-PER|B-ORG\nb _\n\nc O\nd B-PER\n", "utf-8")
    files = f"--train {path} --dev {path} --test {path} --format-option set_separator=|"
    printed = run(
        annotate_next, f"{files} --start 1 --count 1 --rounds 1 --epochs 1 --rules random"
    )
    assert [row[1] for row in cells_of(printed)[2:]] == ["1", "2"]


@pytest.mark.parametrize(("rule", "options"), annotate_next.RULES.items())
def test_the_annotator_asks_for_its_rule(rule, options, monkeypatch):
    def rank(tagger, texts, **given):
        assert (texts, given) == ([("w",)], {"count": 1, **options})
        return [7]

    monkeypatch.setattr(annotate_next, "rank_for_annotation", rank)
    pool = [TaggedSentence(("w",), ("A",))]
    assert annotate_next.choose(rule, None, pool, 1) == [7]
    assert annotate_next.choose("random", None, pool, 1) == [0]


def test_layer_fusion(world, tmp_path):
    pytest.importorskip("accelerate")
    pytest.importorskip("peft")
    test = f"{world}/xx.test.conll"
    files = f"{files_of(world, 'xx')} --language en --targets de={test} ru={test}"
    ways = (
        "--freeze frozen fine-tuned embeddings LoRA --branches global --weighting sigmoid literal"
    )
    options = f"{ways} --epochs 1 --batch-size 6 --out {tmp_path}"
    printed = run(layer_fusion, f"{files} {pretraining(world)} {options}")
    for system in ("last layer", "ScalarMix", "D_2", "D_2, literal", "layer 2", "layer 2, gated"):
        assert printed.count(f"| {system} ") == 4
    for way in ("frozen", "fine-tuned", "embeddings", "LoRA"):
        assert f"files, {way}, global branch, accuracy" in printed
    models = {
        path.parts[-3].partition(",")[0]: json.loads(path.read_text("utf-8"))["about"]["model"]
        for path in (tmp_path / "files").rglob("last layer.0.json")
    }
    trained = {way: int(model.split()[2]) for way, model in models.items()}
    assert trained["frozen"] < trained["embeddings"] < trained["fine-tuned"]
    assert re.search(r"\| average +\| family +\| rest +\| en +\| de +\| ru ", printed)
    assert is_picture(tmp_path / "files" / "layers.png")


@pytest.mark.slow
def test_layer_fusion_on_the_data_folder(data_folder, world, tmp_path):
    pytest.importorskip("accelerate")
    sizes = "--train-size 20 --dev-size 5 --test-size 5 --parallel 4 --epochs 1 --layers 1"
    options = f"--task sagt-lid wikiann conll-nl {sizes} --freeze frozen --out {tmp_path}"
    printed = run(layer_fusion, f"{options} {pretraining(world)}")
    columns = r"\| parameters of the fusion \| average +\| "
    assert re.search(rf"{columns}family +\| rest ", printed)
    assert re.search(rf"{columns}nl +\| es ", printed)
    assert printed.count("| layer 1 ") == printed.count("| LayerAverage ") == 3
    assert "| layer | retrieval | cosine | de " in printed
    assert is_picture(tmp_path / "parallel.png")


@pytest.mark.slow
def test_adapt_code_switched_on_the_data_folder(data_folder, world, tmp_path, monkeypatch):
    pytest.importorskip("accelerate")
    seen = set()
    monkeypatch.setattr(
        adapt_code_switched, "adapt_masked_lm", lambda *given, **_: seen.update(given[2])
    )
    sizes = "--size-of-parts 8 --switch-sentences 3 --words 4 --shares 1 --epochs 1 --head-epochs 1"
    options = f"--mix sagt hinglish {sizes} --out {tmp_path}"
    printed = run(adapt_code_switched, f"{options} --control {world}/xx.txt {pretraining(world)}")
    assert min(seen)[-1].isdigit()  # the lines of the control text end in a number
    for cell in ("at switches %", "POS", "NER", "sentiment"):
        assert f"| {cell} " in printed
    assert is_picture(tmp_path / "hinglish" / "words.png")


LINCE = {
    "pos_spaeng": [("sol", "spa", "NOUN"), ("sun", "eng", "NOUN"), (".", "eng&spa", "PUNCT")],
    "lid_spaeng": [("mar", "lang2"), ("sea", "lang1"), (".", "other")],
    "ner_spaeng": [("luz", "lang2", "O"), ("Sol", "ne", "B-LOC"), ("light", "lang1", "O")],
    "sa_spaeng": [("agua", "lang2"), ("water", "lang1")],
}


def write_lince(folder: Path, task: str, part: str, rows: Sequence[tuple[str, ...]]) -> Path:
    """Write eight sentences with different first words."""
    first, *others = rows
    sentences = []
    for number in range(8):
        sentiment = [("positive", "negative")[number % 2]] if task == "sa_spaeng" else []
        head = [(f"# sent_enum = {number}", *sentiment), (f"{first[0]}{part}{number}", *first[1:])]
        sentences.append([*head, *others])
    return write(folder / task / f"{part}.conll", sentences)


@pytest.fixture
def spanglish(tmp_path) -> Path:
    """Write train and dev of LinCE's Spanglish tasks."""
    for task, rows in LINCE.items():
        for part in ("train", "dev"):
            write_lince(tmp_path, task, part, rows)
    return tmp_path


def test_adapt_code_switched_on_lince(spanglish, world):
    pytest.importorskip("accelerate")
    options = f"--lince {spanglish} --epochs 1 2 --shares 1 --head-epochs 1 --words 0"
    options += f" --mask-switches --loss weighted --out {spanglish}/out"
    rows = cells_of(run(adapt_code_switched, f"{options} {pretraining(world)} --seeds 2"))
    texts = [row[:3] for row in rows if row[0].endswith("%")]
    assert texts == [["0 %", "0", "0"], ["100 %", "32", "1"], ["100 %", "32", "2"]]
    heads = [row for row in rows if row[0] in ("POS", "LID", "NER", "sentiment")]
    settings = [["0 %", "0"], ["100 %", "1"], ["100 %", "2"]]
    assert [row[1:3] for row in heads] == settings * 4
    assert all(0 <= float(cell.split()[0]) <= 100 for row in heads for cell in row[3:])
    assert ["task", "text", "epochs", "accuracy", "F1", "precision", "recall"] in rows
    saved = sorted((spanglish / "out" / "lince").glob("share-1-epochs-2-seed-*/model.safetensors"))
    assert len({path.read_bytes() for path in saved}) == 2  # each seed adapts a new encoder


def test_lince_is_one_mix(spanglish):
    """Sentences of a test part are excluded from the text for adaptation."""
    dev = (spanglish / "lid_spaeng" / "dev.conll").read_text("utf-8").split("\n\n")[0]
    rated = dev.replace("= 0", "= 0\tpositive")
    (spanglish / "sa_spaeng" / "train.conll").write_text(f"{rated}\n\n{rated}\n")
    (spanglish / "sa_spaeng" / "dev.conll").write_text(f"{rated}\n")
    mix = _mixes.load_lince(spanglish)
    assert [len(part) for part in mix.tasks["POS"].parts] == [7, 1, 8]
    assert len(mix.train) == 24
    assert mix.train[0].languages == ("lang2", "lang1", "eng&spa")
    assert mix.dev == mix.tasks["LID"].parts[2]


NER = [[("Ana", "ne", "B-PER"), ("is so", "lang1", "O"), ("aquí", "lang2", "O")]] * 6
NER_FORMAT = "--format lince --format-option task=ner_spaeng"


def test_a_test_file_without_labels_is_tagged(tmp_path):
    train = write(tmp_path / "train", NER)
    test = write(tmp_path / "test", [[row[:2] for row in rows] for rows in NER])
    options = f"--train {train} --test {test} {NER_FORMAT} --systems HME --epochs 1"
    printed = run(tag_code_switched, f"{options} --out {tmp_path}/out")
    assert "| no labels |" in printed
    tags = (tmp_path / "out" / "predictions.txt").read_text("utf-8").split("\n\n")
    assert [len(sentence.split()) for sentence in tags] == [3] * 6
    assert set(" ".join(tags).split()) <= {"O", "B-PER"}


def test_a_frozen_layer_beside_hme(world, tmp_path):
    beside = (
        f"--train {world}/xx.train.conll --dev {world}/xx.dev.conll --out {tmp_path} --epochs 1 "
        f"--beside {world}/bert --runs {tmp_path}/runs "
        "--systems HME 'HME, wide' 'HME + surface + layer'"
    )
    for _ in range(2):
        printed = run(tag_code_switched, f"{beside} --seeds 2 --layer 1")
    assert "HME: dev" not in printed
    assert printed.count(" ± ") == 6
    assert "difference to HME" in printed
    hme, wide = (int(row[1].replace(",", "")) for row in cells_of(printed)[2:4])
    assert wide > 8 * hme
    tagger = pe.SequenceTagger.from_pretrained(tmp_path / "tagger")
    assert len(tagger.predict([["sol", "new"]])[0]) == 2


@pytest.fixture
def small_paper(monkeypatch) -> dict:
    """Reduce the sizes in the paper's recipe of `tag_code_switched` for a quick test."""
    paper = tag_code_switched.RECIPES["winata2021"]
    tiny = {"hidden_size": 8, "num_heads": 2}
    for section, sizes in {
        "scratch": tiny,
        "encoder": {**tiny, "num_layers": 1, "feed_forward_size": 8},
        "embedder": {"embedding_dim": 8, "characters": 8, "character_dim": 8},
        "pieces": {"num_heads": 2, "feed_forward_size": 8},
    }.items():
        for key, value in sizes.items():
            monkeypatch.setitem(paper[section], key, value)
    return paper


def test_the_papers_other_systems_over_two_tasks(small_paper, world, tmp_path):
    """The table has the columns of table 4: parameters and score per task, and the mean score.

    The score is F1 for entities and accuracy for parts of speech.
    """
    for task, tags in (("ner_spaeng", ("B-PER", "O")), ("pos_spaeng", ("NOUN", "VERB"))):
        rows = [("Ana", "ne", tags[0]), ("is", "lang1", tags[1])]
        for part in ("train", "dev"):
            write(tmp_path / task / f"{part}.conll", [rows] * 6)
    encoder = f"{world}/bert"
    systems = ["HME-Ensemble", "Scratch (2L)", "Scratch (6L)", encoder]
    options = f"--format lince --tasks {tmp_path}/ner_spaeng {tmp_path}/pos_spaeng --epochs 1"
    options += f" --model {encoder} --tokenizer {encoder} --members 2 --recipe winata2021"
    options += f" --systems {shlex.join(systems)} --out {tmp_path}/out"
    printed = run(tag_code_switched, options)
    columns, _, *rows = cells_of(printed[printed.rindex("| system ") :])
    assert columns[:4] == ["system", "average", "ner_spaeng parameters", "ner_spaeng f1"]
    assert columns[4:] == ["pos_spaeng parameters", "pos_spaeng accuracy"]
    assert [row[0] for row in rows] == systems
    for row in rows:
        assert float(row[1]) == pytest.approx((float(row[3]) + float(row[5])) / 2, abs=0.01)
    two, six = (int(row[2].replace(",", "")) for row in rows[1:3])
    layer = 4 * (8 * 8 + 8) + 2 * 8 * 32 + 32 + 8 + 4 * 8
    assert six - two == 4 * layer
    assert (tmp_path / "out" / "ner_spaeng" / "tagger").is_dir()


def test_hindi_in_devanagari(small_paper, tmp_path, monkeypatch):
    """The saved tagger transliterates Hindi words itself, and does not change English words."""
    (tmp_path / "pairs.tsv").write_text("kam\tकाम\t3\nnam\tनाम\t1\n", "utf-8")
    rows = [("kam", "hi", "NOUN"), ("song", "en", "NOUN"), ("@ana", "rest", "X")] * 2
    train = write(tmp_path / "train.conll", [rows] * 6)
    trained = tag_code_switched.CharacterTransliterator.for_pairs(
        [("kam", "काम")], hidden_size=8, num_layers=1, num_heads=2
    )
    asked: list[object] = []
    spell = lambda words: ["काम" for _ in words]  # noqa: E731
    monkeypatch.setattr(trained, "transliterate", spell, raising=False)
    monkeypatch.setattr(
        tag_code_switched, "train_transliterator", lambda pairs: asked.extend(pairs) or trained
    )
    options = f"--train {train} --format lince --format-option task=pos_hineng --languages hi en"
    options += f" --recipe winata2021 --systems 'FastText (ML)' --epochs 1 --out {tmp_path}/out"
    run(tag_code_switched, f"{options} --transliterate {tmp_path}/pairs.tsv")
    assert asked == [("kam", "काम"), ("nam", "नाम")]
    tagger = pe.SequenceTagger.from_pretrained(tmp_path / "out" / "tagger")
    assert tagger.prepared([["Kam", "Song", "@ana"]]) == [["काम", "Song", "<USR>"]]
    assert isinstance(tagger.prepare[0], tag_code_switched.Speller)


OWN = "--train two.conll --dev two.conll --test two.conll --control"
METAXL_FILES = "--source-train good.tsv --train good.tsv --dev good.tsv --test odd.tsv --model none"


@pytest.mark.parametrize(
    ("example", "command", "message"),
    [
        (tag_code_switched, "--train no.conll", "path must name a file, got nothing at "),
        (tag_code_switched, "--train two.conll --format word", "format must be one of 'conll', "),
        (tag_code_switched, "--systems FastTxt", "--systems must be among ['FastText (ML)', "),
        (
            tag_code_switched,
            "--train two.conll --test ner",
            "--test (ner) must have labels of --train",
        ),
        (
            tag_code_switched,
            "--train pairs.tsv",
            "must have one word a line with its tag, not texts",
        ),
        (
            metaxl_ner,
            "--target xx",
            "--target must be of am ig rw yo sw in the data folder, got xx",
        ),
        (metaxl_ner, "--wikiann no --target qu", "there must be a file no/en/train (see --wikiann"),
        (metaxl_sentiment, METAXL_FILES, "--dev and --test must have labels of training"),
        (layer_fusion, "--dev-size 0", "--dev-size: must be at least 1, got 0"),
        (adapt_code_switched, "--shares 1.5", "--shares must be in (0, 1], got [1.5]"),
        (adapt_code_switched, f"{OWN} no", "--control must be texts that open"),
        (adapt_code_switched, f"{OWN} odd.tsv", "--control must be texts of 4 words"),
        (
            adapt_code_switched,
            "--train two.conll --dev two.conll --test bare",
            "--test (bare) must have labels, got none",
        ),
        (laser_zero_shot, "--vectors es=a --aligned", "of every language, got none of ['nl']"),
    ],
)
def test_wrong_command_lines(example, command, message: str, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    sentence = [("sol", "NOUN"), ("mar", "VERB")]
    for name, sentences in {
        "two.conll": [sentence] * 2,
        "bare": [[("sol", "_"), ("mar", "_")]] * 2,
        "ner": NER,
        "good.tsv": [[("+", "a b"), ("-", "a b")]],
        "odd.tsv": [[("odd", "a b")]],
        "pairs.tsv": [[("the sun", "el sol"), ("the sea", "el mar")]],
    }.items():
        write(tmp_path / name, sentences)
    monkeypatch.setattr(metaxl_sentiment, "compare", lambda *arguments: pytest.fail("trained"))
    with pytest.raises(SystemExit) as error:
        run(example, command)
    assert message in f"{error.value} {capsys.readouterr().err}"


@pytest.mark.parametrize(
    ("example", "section"),
    [
        (tag_code_switched, tag_code_switched.RECIPES["small"]["encoder"]),
        (layer_fusion, layer_fusion.RECIPE["training"]),
        (adapt_code_switched, adapt_code_switched.RECIPE["heads"]),
        (metaxl_ner, _metaxl.RECIPES["ner"]["training"]),
        (laser_zero_shot, _laser.RECIPES["laser"]["search"]),
    ],
)
def test_a_key_of_a_recipe_that_nothing_takes_is_named(example, section, monkeypatch):
    monkeypatch.setitem(section, "lerning_rate", 1)
    refused(SystemExit, r"^recipes\.toml: .* must have keys .*'lerning_rate'", run, example, "")


def test_the_matrix_language():
    """The first language follows table 1 of Winata 2021.

    It is English for Spanish-English entities, and Spanish for Spanish-English parts of speech.
    """
    order = tag_code_switched.matrix_first
    assert order(["es", "en", "ca", "pt"], [], "ner_spaeng") == ["en", "es", "ca", "pt"]
    assert order(["es", "en", "ca", "pt"], [], "pos_spaeng") == ["es", "en", "ca", "pt"]
    train = [TaggedSentence(("a", "b", "c"), ("X", "X", "X"), ("en", "es", "en"))]
    assert order(["es", "en"], train, None) == ["en", "es"]


SAME = {
    "en": ["the", "sun", "sea", "light", "day", "water", "Ann", "Rome", "is", "in"],
    "es": ["el", "sol", "mar", "luz", "día", "agua", "Ann", "Roma", "es", "en"],
    "nl": ["de", "zon", "zee", "licht", "dag", "water", "Ann", "Rome", "is", "in"],
}


@pytest.fixture(scope="module")
def parallel(tmp_path_factory) -> Path:
    """Write sentence pairs of three languages, translated word for word, and retrieval test pairs.

    Two of the languages also have tagged sentences and raw text.
    """
    folder = tmp_path_factory.mktemp("parallel")
    order = random.Random(0)

    def sentences(count):
        return [[order.randrange(10) for _ in range(order.randint(3, 7))] for _ in range(count)]

    def texts(rows, language):
        words = SAME[language]
        return [f"{' '.join(words[i] for i in row)} {number}" for number, row in enumerate(rows)]

    rows = sentences(200)
    names = {"Ann": "B-PER", "Rome": "B-LOC", "Roma": "B-LOC"}
    for other in ("es", "nl"):
        pairs = zip(texts(rows, "en"), texts(rows, other), strict=True)
        (folder / f"en-{other}.tsv").write_text("\n".join(map("\t".join, pairs)), "utf-8")
        (folder / f"{other}.txt").write_text("\n".join(texts(rows, other)), "utf-8")
        for part in PARTS:
            tagged = [[SAME[other][i] for i in row] for row in sentences(12)]
            tagged = [[(word, names.get(word, "O")) for word in words] for words in tagged]
            write(folder / f"{other}.{part}.conll", tagged)
    # the first sentence is also in the text, under the same number
    test = [rows[0], *sentences(20)]
    for side, language in (("spa", "es"), ("eng", "en")):
        (folder / f"tatoeba.spa-eng.{side}").write_text("\n".join(texts(test, language)), "utf-8")
    return folder


@pytest.fixture(scope="module")
def small_laser(parallel) -> Path:
    """Pretrain a tiny encoder, and check that a second call reads it."""
    pytest.importorskip("sacremoses")
    folder = parallel / "encoder"
    options = f"--size tiny --text {parallel} --tatoeba {parallel} --max-steps 20 --cache {folder}"
    printed = run(pretrain_laser, options)
    for row in ("en -> es", "es -> en", "nl -> en", "nl -> es", "es   "):
        assert f"| {row}" in printed
    assert printed == run(pretrain_laser, options)
    return folder


def test_pretrained_laser_opens(small_laser):
    sentences = LaserSentences.from_pretrained(small_laser)
    released = LaserEncoder.from_checkpoint(small_laser / "laser.pt")
    assert released.dictionary.pieces() == sentences.tokenizer.dictionary.pieces()
    vectors = sentences.encode(["el sol", "the sun", ""])
    pieces = sentences.tokenizer.text_pieces(["el sol"])
    torch.testing.assert_close(released(pieces.piece_ids, pieces.piece_mask), vectors[:1])
    words = pe.encoders.LaserTop(sentences.encoder, sentences.tokenizer)
    assert words(words.encode([["el", "sol"]])[0]).shape == (1, 2, 16)
    report = json.loads((small_laser / "report.json").read_text("utf-8"))
    assert report["left_out"]["tatoeba"] > 0
    assert report["directions"]["en -> es"]["after"] < report["directions"]["en -> es"]["before"]


def test_pretraining_goes_on(parallel, tmp_path, monkeypatch):
    """A continued run after an interruption has exactly the weights of an uninterrupted run."""
    pytest.importorskip("sacremoses")
    monkeypatch.setattr(pretrain_laser, "SAVE_STEPS", 2)
    save, saved = torch.save, []

    def pretrain(name, **changes):
        texts = {"text": parallel, "tatoeba": parallel, "cache": tmp_path / name}
        options = {"max_steps": 5, "progress": False, "device": "cpu", **texts, **changes}
        return pretrain_laser.pretrain_laser("tiny", **options)

    def killed(state, path):
        saved.append(path)
        if len(saved) == 2:
            raise KeyboardInterrupt
        save(state, path)

    whole = pretrain("whole")
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            pretrain("cut")
    cut = pretrain("cut")
    first, second = (
        LaserSentences.from_pretrained(folder).encoder.state_dict() for folder in (whole, cut)
    )
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
    refused(ValueError, "cache must hold an encoder of these settings", pretrain, "cut", seed=1)


@pytest.mark.parametrize("protocol", ["zero_shot", "joint"])
def test_laser_zero_shot(protocol: str, parallel, small_laser, tmp_path):
    names = ["MUSE", "BPEBow", "BPEGRU", "LSTM", "LaserTop", "LaserElmo"]
    options = f"--encoder {small_laser} --data {parallel} --text {parallel} --sources es"
    options += f" --protocols {protocol} --epochs 1 --seeds 1 --dim 8 --folder {tmp_path}"
    if protocol == "joint":
        names = ["MUSE", "LaserTop"]
        options += " --search 1 --adam --freeze all --systems MUSE LaserTop"
    printed = run(laser_zero_shot, options)
    table = printed[printed.index("###") :]
    assert [row[0] for row in cells_of(table)][2 : 2 + len(names)] == names
    if protocol == "joint":
        assert is_picture(tmp_path / "ner" / "gain_es.png")
        assert "LaserTop on es: {'input_dropout': " in printed
        assert "MUSE on es: " not in printed  # the paper tunes no baseline
        return
    assert "### ner trained on es, sign test against LaserTop\n" in table
    assert "### nl trained on es, confusion of B, I and O\n" in table
    assert "nl trained on es, entities that LaserTop gets right and MUSE wrong: " in table
    again = run(laser_zero_shot, options)
    assert again[again.index("###") :] == table


@pytest.fixture
def conll2003(tmp_path) -> Path:
    """Write English and German files in the format of CoNLL-2003, with IOB1 entities."""
    english = "-DOCSTART- -X- -X- O\n\nAnn NNP I-NP I-PER\n“Bo NN|SYM I-NP B-PER\n"
    german = "-DOCSTART- -X- -X- -X- O\n\nIn in APPR B-PC O\nÖls Öls NE I-NC I-PER\n"
    for end in ("train", "testa", "testb"):
        (tmp_path / f"eng.{end}").write_text(english, "utf-8")
        (tmp_path / f"deu.{end}").write_text(german, "utf-8")
    return tmp_path


def laser_data(folder: Path, command: str) -> list[Corpus]:
    """Read the files of a folder in the same way as the LASER example."""
    return read_corpora(parsed(laser_zero_shot, f"--data {folder}/nowhere {folder} {command}"))


def test_english_and_german_of_the_shared_task(conll2003):
    en, de = laser_data(conll2003, "--languages en de")
    assert en.train == en.test == [TaggedSentence(("ann", '"bo'), ("B-PER", "B-PER"))]
    assert de.dev == [TaggedSentence(("in", "öls"), ("O", "B-PER"))]
    en, de = laser_data(conll2003, "--languages en de --task pos --no-normalize")
    assert en.train == [TaggedSentence(("Ann", "“Bo"), ("NOUN", "NOUN"))]
    assert de.train == [TaggedSentence(("In", "Öls"), ("ADP", "NOUN"))]


@pytest.mark.parametrize("aligned", ["", "--aligned"])
def test_vectors_of_one_space_stay_as_they_are(aligned: str, tmp_path):
    """Files of MUSE are already aligned, and a rotation by identical words would move them."""
    for language, text in (("es", "sol 1 0\nno 0 1\n"), ("nl", "zon 1 0\nno 1 1\n")):
        (tmp_path / f"{language}.vec").write_text(text)
    command = f"--vectors es={tmp_path}/es.vec nl={tmp_path}/nl.vec {aligned}"
    corpora = [Corpus(language, [], [], []) for language in ("es", "nl")]
    joined = laser_zero_shot.aligned_vectors(corpora, parsed(laser_zero_shot, command))
    same = joined.vectors(["zon", "no"]).tolist() == [[1, 0], [0, 1]]
    assert same == bool(aligned)


@pytest.mark.slow
def test_laser_examples_on_the_data_folder(data_folder, tmp_path):
    pytest.importorskip("sacremoses")
    sizes = "--size tiny --languages en es nl --lines 60 --max-steps 3"
    assert "| nl " in run(pretrain_laser, f"{sizes} --cache {tmp_path}/encoder")
    task = f"--task pos --encoder {tmp_path}/encoder --sources nl --systems BPEBow LaserElmo"
    sizes = "--sentences 20 --dev 10 --test 10 --epochs 1 --seeds 1"
    assert "| LaserElmo | " in run(laser_zero_shot, f"{task} {sizes} --folder {tmp_path}")


def test_romanised_vectors(tmp_path):
    pairs, text, save, roman = map(tmp_path.joinpath, "abcd")
    pairs.write_text("raam\tराम\t3\nram\tराम\t1\nghar\tघर\t2\n", "utf-8")
    text.write_text("राम घर ।\n" * 9, "utf-8")
    files = f"--pairs {pairs} --text {text} --save {save} --write-text {roman} --epochs 1 --dim 4"
    assert f"words in {save}" in run(romanised_vectors, files)
    lines = [*map(str.split, roman.read_text("utf-8").splitlines())]
    assert {line[0] for line in lines} == {"raam", "ram"}
    assert {tuple(line[1:]) for line in lines} == {("ghar", "।")}
    pairs.write_text("raam\tराम\n", "utf-8")
    refused(
        SystemExit, "line 1 must be a spelling, a word and a count", run, romanised_vectors, files
    )
