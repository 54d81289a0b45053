"""The hand-made dictionary, and the hand-made answers for words of real tweets."""

import importlib.util
import re
import sys
import unicodedata
from pathlib import Path
from types import ModuleType

import pytest

from polyembed.text import DictionaryTransliterator, fold_devanagari, hinglish_words

ROOT = Path(__file__).resolve().parents[2]
DEVANAGARI = "[\u0900-\u0963\u0970-\u097f]+"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "transliteration", ROOT / "benchmarks" / "transliteration.py"
    )
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.append(str(ROOT / "benchmarks"))  # whose own helpers it imports
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
        del sys.modules[spec.name]


def test_dictionary_is_sound() -> None:
    words = hinglish_words()
    assert (len(words), len(set(words.values()))) == (731, 438)
    assert (words["h"], words["yeh"], words["gareeb"]) == ("है", "यह", "गरीब")
    for spelling, word in words.items():
        assert re.fullmatch("[a-z]+", spelling), spelling
        assert re.fullmatch(DEVANAGARI, word), word
        assert unicodedata.normalize("NFC", word) == word


def test_a_spelling_is_listed_once() -> None:
    text = (ROOT / "src" / "polyembed" / "text" / "data" / "hinglish.tsv").read_text("utf-8")
    spellings = [
        spelling for line in text.splitlines() for spelling in line.split("\t")[1].split(" ")
    ]
    assert len(spellings) == len(set(spellings)) == len(hinglish_words())


def test_answers_are_those_of_the_draw(benchmark: ModuleType, data_folder: Path) -> None:
    drawn = benchmark.draw(data_folder / "code_switched" / "hinglish_ner" / "annotatedData.csv")
    assert drawn == {answer.word: answer.draws for answer in benchmark.read_answers()}


def test_the_dictionary_is_right_where_it_answers(benchmark: ModuleType) -> None:
    dictionary = DictionaryTransliterator(hinglish_words())
    answers = [answer for answer in benchmark.read_answers() if answer.word in hinglish_words()]
    assert len(answers) > 130
    tests = [(answer.word, answer.spellings, 1) for answer in answers]
    assert benchmark.error_rates(dictionary, tests) == (0.0, 1.0)


def test_answers_are_sound(benchmark: ModuleType) -> None:
    answers = benchmark.read_answers()
    assert len(answers) == len({answer.word for answer in answers}) == 300
    for answer in answers:
        assert re.fullmatch("[a-z]+", answer.word)
        assert answer.draws > 0
        assert answer.language in ("hi", "en", "name", "-")
        assert bool(answer.spellings) == (answer.language != "-")
        assert all(re.fullmatch(DEVANAGARI, spelling) for spelling in answer.spellings), answer
        assert len(set(map(fold_devanagari, answer.spellings))) == len(answer.spellings)
    assert sum(answer.language == "hi" for answer in answers) > 200
