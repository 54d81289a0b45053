"""The examples that `make demo` does not run, on small files made here."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import polyembed as pe
from polyembed.vectors import OrthogonalMapping, TextVectors

ROOT = Path(__file__).resolve().parents[1]


def run(name: str, *arguments: object) -> str:
    command = [sys.executable, ROOT / "examples" / name, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


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
        lines = [f"{word} {' '.join(map(str, row))}" for word, row in zip(names[language], rows.tolist(), strict=True)]
        (tmp_path / f"{language}.vec").write_text("\n".join(["400 7", *lines]))
    pairs = [f"{one} {other}" for one, other in zip(names["es"], names["en"], strict=True)]
    (tmp_path / "train.txt").write_text("\n".join([*pairs[:50], "e1 nobody"]))
    (tmp_path / "test.txt").write_text("\n".join(pairs[50:]))
    torch.save(turn, tmp_path / "turn.pt")
    return tmp_path


@pytest.mark.parametrize("how", [["--train", "train.txt"], ["--method", "identical"]])
def test_align_embeddings(two_languages: Path, how: list[str]) -> None:
    folder = two_languages
    files = [folder / "es.vec", folder / "en.vec", *(folder / part if part.endswith(".txt") else part for part in how)]
    printed = run("align_embeddings.py", *files, "--test", folder / "test.txt", "--out", folder / "out")
    assert "350" in printed
    assert "num_dropped: 1" in printed or "--train" not in how
    mapping = OrthogonalMapping.from_pretrained(folder / "out" / "mapping")
    torch.testing.assert_close(mapping.weight.detach(), torch.load(folder / "turn.pt"), rtol=0, atol=0.05)
    test = [tuple(line.split()) for line in (folder / "test.txt").read_text().splitlines()]
    es, en = TextVectors(folder / "es.vec"), TextVectors(folder / "en.vec")
    assert pe.bli(mapping(es), en, test).csls[1] > 0.9
    assert (folder / "out" / "pairs.png").stat().st_size > 10_000


WORDS = ["el", "la", "un", "sol", "mar", "luz", "día", "agua", "the", "a", "sun", "sea", "light", "day", "water"]


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
            rows = [[(word, "B-LOC" if word in ("sol", "sun") else "O") for word in sentence(words)] for _ in range(12)]
            text = "\n\n".join("\n".join(f"{word} {tag}" for word, tag in row) for row in rows)
            (folder / f"{language}.{part}.conll").write_text(text + "\n", "utf-8")
            labelled = [f"{order.choice('+-')}\t{' '.join(word for word, _ in row)}" for row in rows]
            (folder / f"{language}.{part}.tsv").write_text("\n".join(labelled), "utf-8")
    return folder


@pytest.mark.parametrize("name", ["metaxl_ner", "metaxl_sentiment"])
def test_metaxl(tiny_world: Path, tmp_path: Path, name: str) -> None:
    pytest.importorskip("accelerate")
    kind = "conll" if name == "metaxl_ner" else "tsv"
    target = [part for p in ("train", "dev", "test") for part in (f"--{p}", tiny_world / f"yy.{p}.{kind}")]
    pretraining = ["--size", "tiny", "--pretrain", "xx", "yy", "--text", tiny_world, "--max-steps", 3]
    options = ["--cache", tiny_world / "encoder", "--epochs", 1, "--seeds", 1, "--batch-size", 6, "--out", tmp_path]
    files = ["--source-train", tiny_world / f"xx.train.{kind}", *target]
    printed = run(f"{name}.py", *files, *pretraining, *options)
    for row in ("target only", "JT", "JT with RTN", "MetaXL, layer 0", "MetaXL, layer 1", "MetaXL, layer 2"):
        assert f"| {row} " in printed
    assert "CloudDistances" in printed
    assert len(list(tmp_path.glob("*.png"))) == 1


def test_layer_fusion(tiny_world: Path, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    files = [part for p in ("train", "dev", "test") for part in (f"--{p}", tiny_world / f"xx.{p}.conll")]
    pretraining = ["--size", "tiny", "--pretrain", "xx", "yy", "--text", tiny_world, "--max-steps", 3]
    options = ["--cache", tiny_world / "encoder", "--epochs", 1, "--seeds", 1, "--batch-size", 6, "--out", tmp_path]
    printed = run("layer_fusion.py", *files, *pretraining, *options)
    assert printed.count("| last layer ") == printed.count("| ScalarMix ") == printed.count("| D_2 ") == 2
    assert (tmp_path / "files" / "layers.png").stat().st_size > 10_000


def test_layer_fusion_on_the_data_folder(data_folder: Path, tiny_world: Path, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    pretraining = ["--size", "tiny", "--pretrain", "xx", "yy", "--text", tiny_world, "--max-steps", 3]
    sizes = ["--train-size", 20, "--dev-size", 5, "--test-size", 5, "--parallel", 4]
    options = ["--cache", tiny_world / "encoder", "--epochs", 1, "--seeds", 1, "--layers", 1, "--freeze", "frozen"]
    printed = run("layer_fusion.py", "--task", "sagt-lid", "wikiann", *sizes, *pretraining, *options, "--out", tmp_path)
    assert "| system     | average | family | rest " in printed
    assert "| layer | average | cosine | de " in printed


def test_adapt_code_switched(tiny_world: Path, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    files = [part for p in ("train", "dev", "test") for part in (f"--{p}", tiny_world / f"xx.{p}.conll")]
    pretraining = ["--size", "tiny", "--pretrain", "xx", "yy", "--text", tiny_world, "--max-steps", 3]
    options = ["--cache", tiny_world / "encoder", "--epochs", 1, "--head-epochs", 1, "--seeds", 1, "--out", tmp_path]
    printed = run("adapt_code_switched.py", *files, *pretraining, *options, "--shares", 1.0)
    assert "| 0 %   | 0 " in printed
    assert "| 100 % | 12 " in printed


def test_adapt_code_switched_on_the_data_folder(data_folder: Path, tiny_world: Path, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    pretraining = ["--size", "tiny", "--pretrain", "xx", "yy", "--text", tiny_world, "--max-steps", 3]
    sizes = ["--size-of-parts", 8, "--switch-sentences", 3, "--words", 4, "--shares", 1.0, "--epochs", 1]
    options = ["--cache", tiny_world / "encoder", "--head-epochs", 1, "--seeds", 1, "--out", tmp_path]
    printed = run("adapt_code_switched.py", "--mix", "sagt", "hinglish", *sizes, *pretraining, *options)
    for column in ("at switches %", "POS accuracy", "NER f1", "sentiment accuracy"):
        assert f"| {column} " in printed
    assert (tmp_path / "hinglish" / "words.png").stat().st_size > 10_000
