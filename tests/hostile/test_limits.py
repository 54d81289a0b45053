"""A sound model that is larger than the limits opens where its user says so."""

import json
import tracemalloc
from pathlib import Path

import pytest
import torch
from hostile.mutations import change
from tiny_models import tiny_model, word_piece_tokenizer
from toys import toy_table

import polyembed as pe
from polyembed import _loading

LIFTS = r"\(bounded=False lifts this limit, for a folder that you trust\)"


def combined(folder: Path) -> pe.MetaEmbedding:
    lexicon = toy_table(3).lexicon
    sources = [
        pe.SourceEmbedding.from_embedding(torch.nn.Embedding(len(lexicon), 3), lexicon)
        for _ in range(5)
    ]
    embedder = pe.MetaEmbedding.concat(sources)
    embedder.save_pretrained(folder)
    return embedder


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("MOST_BYTES", r"config\.json must have at most 3 bytes, got \d+ "),
        ("MOST_VALUES", r"config\.json must have at most 3 values, got \d+ "),
        ("MOST_OBJECTS", r"config must have at most 3 objects, got more "),
        ("MOST_PLACES", r"config must have at most 3 places of objects, got \d+ "),
    ],
)
def test_a_limit_can_be_lifted(
    limit: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = combined(tmp_path)
    monkeypatch.setattr(_loading, limit, 3)
    with pytest.raises(ValueError, match=message + LIFTS):
        pe.MetaEmbedding.from_pretrained(tmp_path)
    opened = pe.MetaEmbedding.from_pretrained(tmp_path, bounded=False)
    ids = torch.arange(5)
    torch.testing.assert_close(opened(ids), embedder(ids))


def test_a_file_is_opened_by_few_objects(tmp_path: Path) -> None:
    """Also under several names, as a hub's files of equal content are."""
    combined(tmp_path)
    sums = json.loads((tmp_path / "config.json").read_text())["checksums"]
    for i in range(20):
        (tmp_path / f"lexicon-{i}.json").symlink_to("lexicon.json")
    opened = [{"class": "Lexicon", "files": {"path": f"lexicon-{i}.json"}} for i in range(20)]
    change(tmp_path, lambda config: config["config"].update(opened=opened))
    names = {f"lexicon-{i}.json": sums["lexicon.json"] for i in range(20)}
    change(tmp_path, lambda config: config["checksums"].update(names))
    message = (
        r"files.path must be a file of at most 16 objects, got lexicon-15.json of more " + LIFTS
    )
    with pytest.raises(ValueError, match=message):
        pe.MetaEmbedding.from_pretrained(tmp_path)


def test_a_configuration_takes_memory_in_bounds(tmp_path: Path) -> None:
    """Lists without content took 50 times the size of the file."""
    combined(tmp_path)
    change(
        tmp_path, lambda config: config["config"].update(junk=[[]] * (_loading.MOST_VALUES // 2))
    )
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"config\.json must have at most 1048576 values"):
        pe.MetaEmbedding.from_pretrained(tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 2e7
    tracemalloc.stop()


def test_what_the_weights_cannot_fill_is_refused_in_any_case(tmp_path: Path) -> None:
    pe.PretrainedWordEncoder(tiny_model("bert"), word_piece_tokenizer()).save_pretrained(tmp_path)
    change(tmp_path, lambda config: config["config"]["model"].update(intermediate_size=5000))
    with pytest.raises(
        ValueError, match=r"config must have tensors that model.safetensors can fill .*" + LIFTS
    ):
        pe.PretrainedWordEncoder.from_pretrained(tmp_path)
    with pytest.raises(
        ValueError, match=r"model\.safetensors must fit the module that config.json describes, got"
    ):
        pe.PretrainedWordEncoder.from_pretrained(tmp_path, bounded=False)


def test_more_parts_than_usual(tmp_path: Path) -> None:
    """1,100 encoders without a tensor: the last module built holds more parts than its tensors suggest."""
    table = toy_table(3)
    embedder = pe.MetaEmbedding.concat([pe.UniqueWords(table) for _ in range(1100)])
    embedder.save_pretrained(tmp_path)
    with pytest.raises(
        ValueError, match=r"config must have parts that 1 saved tensors can fill, got .*" + LIFTS
    ):
        pe.MetaEmbedding.from_pretrained(tmp_path)
    opened = pe.MetaEmbedding.from_pretrained(tmp_path, bounded=False)
    assert len(opened.embedders) == 1100
