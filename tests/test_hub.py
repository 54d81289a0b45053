"""Sharing models: cards, revisions, work without a network, folders of other versions, no foreign code."""

import json
import math
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from cases import CASES
from hostile.mutations import reseal
from safetensors.torch import load_model
from tiny_models import tiny_model, word_piece_tokenizer
from torch import nn
from toys import NEW_WORDS, SENTENCES, TAGS, ToyVectors, toy_lexicon

import polyembed as pe
from polyembed.saving import CardScore, PretrainedModule, model_card

FORMAT_1 = Path(__file__).parent / "data" / "format_1"
COMMITS = ("a" * 40, "b" * 40)


def build_tagger(seed: int = 0) -> pe.SequenceTagger:
    torch.manual_seed(seed)
    embedder = pe.SourceEmbedding(ToyVectors(3), toy_lexicon())
    return pe.SequenceTagger(embedder, TAGS).eval()


# --- cards -------------------------------------------------------------------------------------------------------

KNOWN = {
    "name": "Hinglish entities", "repo_id": "me/tagger", "languages": ["hi-Latn", "en", "no"], "license": "apache-2.0",
    "base_model": "xlm-roberta-base", "sources": {"cc.hi.300.bin": "CC BY-SA 3.0", "a|b": None},
    "data": {"org/lince": None, "SAGT": "CC BY-NC-SA 3.0"}, "seed": np.arange(2), "notes": "Tweets of 2018.",
    "scores": [CardScore("f1", 0.5764, "LinCE", "dev", mode="conll"), CardScore("accuracy", 0.9, "SAGT")],
}  # fmt: skip


def parts_of(card: str) -> tuple[dict, str]:
    empty, header, body = card.split("---\n", 2)
    assert empty == ""
    return yaml.safe_load(header), body


def test_a_card_says_what_it_is_told() -> None:
    header, body = parts_of(model_card(build_tagger(), **KNOWN))
    assert header.pop("model-index") == [
        {
            "name": "Hinglish entities",
            "results": [
                {
                    "task": {"type": "token-classification"},
                    "dataset": {"name": "LinCE", "type": "LinCE", "split": "dev"},
                    "metrics": [{"type": "f1", "value": 0.5764, "args": {"mode": "conll"}}],
                },
                {
                    "task": {"type": "token-classification"},
                    "dataset": {"name": "SAGT", "type": "SAGT"},
                    "metrics": [{"type": "accuracy", "value": 0.9}],
                },
            ],
        }
    ]
    assert header == {
        "language": ["hi-Latn", "en", "no"], "license": "apache-2.0", "library_name": "polyembed",
        "pipeline_tag": "token-classification", "base_model": "xlm-roberta-base", "datasets": ["org/lince"],
        "tags": ["polyembed", "SequenceTagger"],
    }  # fmt: skip
    for line in (
        "# Hinglish entities",
        'model = SequenceTagger.from_pretrained("me/tagger", revision=None)  # set a commit to pin it',
        "- Tags: `O` `B-ES` `I-ES` `B-EN` `I-EN`",
        "- Vectors: ToyVectors",
        "- Languages: hi-Latn, en, no",
        "- Licence of the model: apache-2.0",
        "- Tuned from: xlm-roberta-base",
        "- Sources: cc.hi.300.bin (licence: CC BY-SA 3.0); a|b (licence: not stated)",
        "- Training data: org/lince (licence: not stated); SAGT (licence: CC BY-NC-SA 3.0)",
        "- Seed: 0, 1",
        "| LinCE | dev | f1 | conll | 0.5764 |",
        "| SAGT | not stated | accuracy |  | 0.9 |",
        "Tweets of 2018.",
        f"- polyembed {pe.__version__}",
    ):
        assert f"\n{line}\n" in body
    assert "transformers" not in body
    count = 5 * (3 + 1) + 5 * 5 + 2 * 5
    assert f"- Parameters: {count + 9 * 3}, of which {count} train\n" in body


def test_a_card_invents_nothing() -> None:
    header, body = parts_of(model_card(build_tagger()))
    assert header == {
        "library_name": "polyembed", "pipeline_tag": "token-classification", "tags": ["polyembed", "SequenceTagger"]
    }  # fmt: skip
    for line in ("Languages", "Licence of the model", "Sources", "Training data", "Seed"):
        assert f"- {line}: not stated\n" in body
    assert "## Results\n\nNot stated.\n" in body
    assert "## Notes" not in body
    assert "Tuned from" not in body
    assert "from torch.nn.modules.linear import Linear" in model_card(nn.Linear(2, 3)), (
        "a module of another library"
    )
    assert "\n- Seed: 3\n" in model_card(build_tagger(), seed=np.int64(3))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_module_has_a_card(case) -> None:
    module = case.build()
    header, body = parts_of(model_card(module, languages=["es"]))
    assert header["tags"][1] == type(module).__name__
    code = body.split("```python\n")[1].split("\nmodel")[0]
    names: dict[str, object] = {}
    exec(code, names)  # the import that it shows
    assert names[type(module).__name__] is type(module)
    assert all(str(folder) not in body for folder in (Path.home(), Path.cwd(), "/tmp"))


def test_an_encoder_of_transformers_on_a_card() -> None:
    encoder = pe.PretrainedWordEncoder(tiny_model("bert"), word_piece_tokenizer())
    header, body = parts_of(model_card(pe.SequenceClassifier(encoder, ["a|b", "c\nd"])))
    assert header["pipeline_tag"] == "text-classification"
    assert "- Encoders of transformers: `bert`\n" in body
    assert "- Labels: `a|b` `c d`\n" in body
    assert "\n- transformers " in body


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"languages": "es"},
            TypeError,
            r"languages must be a sequence of codes, got the string 'es'$",
        ),
        (
            {"languages": ["es", "Spanish!"]},
            ValueError,
            r"languages\[1\] must be a code, .*, got 'Spanish!'$",
        ),
        ({"scores": [("f1", 0.5, "x")]}, TypeError, r"scores\[0\] must be a CardScore, got tuple$"),
        (
            {"scores": [CardScore("accuracy", math.nan, "x")]},
            ValueError,
            r"scores\[0\].value must be .*, got nan$",
        ),
        (
            {"scores": [CardScore("accuracy", 0.5, " ")]},
            ValueError,
            r"scores\[0\].data must be a name, got ' '$",
        ),
        (
            {"scores": [CardScore("F1", 0.5, "x")]},
            ValueError,
            r"scores\[0\].mode must say how an F1 counts entities",
        ),
        (
            {"data": ["x"]},
            TypeError,
            r"data must be names with their licences, as \{'SAGT': None\}, got \['x'\]$",
        ),
        ({"sources": "x"}, TypeError, r"sources must be names with their licences, .*, got 'x'$"),
    ],
)
def test_wrong_cards(options: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=f"^{message}"):
        model_card(build_tagger(), **options)


def test_a_card_belongs_to_its_model(tmp_path: Path) -> None:
    tagger, path = build_tagger(), tmp_path / "README.md"
    with pytest.raises(
        TypeError, match=r"^card must be text \(what model_card returns\), got dict$"
    ):
        tagger.save_pretrained(tmp_path, card={})
    assert os.listdir(tmp_path) == []
    tagger.save_pretrained(tmp_path)
    assert not path.exists()
    tagger.save_pretrained(tmp_path, card=model_card(tagger, **KNOWN))
    assert path.read_text("utf-8") == model_card(tagger, **KNOWN)
    tagger.save_pretrained(tmp_path)
    assert not path.exists(), "it describes another model"
    tagger.save_pretrained(tmp_path, card="# Mine")
    path.write_text("# Mine, edited")
    pe.SequenceTagger.from_pretrained(tmp_path)
    with pytest.warns(
        UserWarning, match=r"README.md was edited and describes an earlier model: pass card="
    ):
        tagger.save_pretrained(tmp_path)
    assert path.read_text("utf-8") == "# Mine, edited"


@pytest.mark.parametrize("there", [False, True])
def test_pushing_and_loading(there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    calls: dict[str, object] = {}

    class Api:
        def create_repo(self, repo_id: str, **options: object) -> None:
            calls["repo"] = repo_id, options

        def file_exists(self, repo_id: str, name: str, *, revision: str | None) -> bool:
            assert (repo_id, name, revision) == ("me/tagger", "README.md", "v1")
            return there

        def upload_folder(self, *, folder_path: str, **options: object) -> str:
            shutil.copytree(folder_path, tmp_path / "hub", dirs_exist_ok=True)
            calls["upload"] = options
            return "https://hub/commit"

    def snapshot_download(name: str, **options: object) -> str:
        calls["download"] = name, options
        return str(tmp_path / "hub")

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    tagger, path = build_tagger(), tmp_path / "hub" / "README.md"
    assert tagger.push_to_hub("me/tagger", revision="v1", private=True) == "https://hub/commit"
    assert calls["repo"] == ("me/tagger", {"private": True, "exist_ok": True})
    assert calls["upload"] == {
        "repo_id": "me/tagger",
        "revision": "v1",
        "commit_message": "Upload with polyembed",
    }
    assert path.exists() != there, "the owner's card is not overwritten"
    if not there:
        assert path.read_text("utf-8") == model_card(tagger, repo_id="me/tagger")
    tagger.push_to_hub("me/tagger", revision="v1", card="mine")
    assert path.read_text("utf-8") == "mine"
    again = pe.SequenceTagger.from_pretrained("me/tagger", revision="v1", local_files_only=True)
    assert calls["download"] == (
        "me/tagger",
        {"revision": "v1", "cache_dir": None, "local_files_only": True},
    )
    assert torch.equal(again.decoder.linear.weight, tagger.decoder.linear.weight)


def test_no_folder_of_this_machine_is_shared(tmp_path: Path) -> None:
    source = pe.FastTextVectors.train(
        [["me", "gusta"]] * 9, tmp_path / "es.bin", dim=3, min_count=1, bucket=10
    )
    lexicon = toy_lexicon()
    tagger = pe.SequenceTagger(pe.SourceEmbedding(source, lexicon), TAGS)
    tagger.save_pretrained(tmp_path / "tagger", copy_vectors=False, card=model_card(tagger))
    for name in ("config.json", "README.md"):
        text = (tmp_path / "tagger" / name).read_text("utf-8")
        assert str(tmp_path) not in text
        assert "es.bin" in text
    again = pe.SequenceTagger.from_pretrained(tmp_path / "tagger")
    assert "- Vectors: FastTextVectors (`es.bin`)\n" in model_card(tagger)
    assert "- Vectors: `FastTextVectors(path='es.bin')`, to be attached\n" in model_card(again)


# --- revisions, and no network -----------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Lay out what huggingface_hub keeps: two commits, main at the second, a tag v1 at the first; files are links."""
    repository = tmp_path / "cache" / "models--me--tagger"
    for seed, commit in enumerate(COMMITS):
        build_tagger(seed).save_pretrained(tmp_path / commit)
        (repository / "snapshots" / commit).mkdir(parents=True)
        for file in (tmp_path / commit).iterdir():
            blob = repository / "blobs" / f"{seed}-{file.name}"
            blob.parent.mkdir(exist_ok=True)
            shutil.copyfile(file, blob)
            (repository / "snapshots" / commit / file.name).symlink_to(
                os.path.relpath(blob, repository / "snapshots/x")
            )
    (repository / "refs").mkdir()
    for name, commit in (("main", COMMITS[1]), ("v1", COMMITS[0])):
        (repository / "refs" / name).write_text(commit)
    return tmp_path / "cache"


def test_a_revision_pins(cache: Path) -> None:
    for revision, seed in ((None, 1), ("main", 1), ("v1", 0), (COMMITS[0], 0), (COMMITS[1], 1)):
        found = pe.SequenceTagger.from_pretrained(
            "me/tagger", revision=revision, cache_dir=cache, local_files_only=True
        )
        assert torch.equal(found.decoder.linear.weight, build_tagger(seed).decoder.linear.weight), (
            revision
        )
    rule = r"^name_or_folder must be a folder or a repository on the hub, got 'me/tagger' at revision 'v2' \(offline, and"
    with pytest.raises(FileNotFoundError, match=rf"{rule} not in the cache {cache}\)$"):
        pe.SequenceTagger.from_pretrained(
            "me/tagger", revision="v2", cache_dir=cache, local_files_only=True
        )


def test_offline_by_the_environment(cache: Path) -> None:
    """A process with HF_HUB_OFFLINE opens what is in the cache, and says why it finds nothing else; no socket opens."""
    program = (
        "import socket, sys, polyembed as pe\n"
        "def refuse(*args, **kwargs): raise AssertionError('the network')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        "import toys\n"
        "print(len(pe.SequenceTagger.from_pretrained('me/tagger').predict([['me', 'song']])[0]))\n"
        "try: pe.SequenceTagger.from_pretrained('me/other', revision='main')\n"
        "except FileNotFoundError as error: print(error)\n"
    )
    environment = {
        **os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(cache), "PYTHONPATH": os.pathsep.join(sys.path)
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rule = "name_or_folder must be a folder or a repository on the hub"
    got = f"'me/other' at revision 'main' (offline, and not in the cache {cache})"
    assert done.stdout == f"2\n{rule}, got {got}\n"


# --- folders of other versions, and of others --------------------------------------------------------------------


def test_format_1_is_refused_and_converted(tmp_path: Path) -> None:
    """Parameters have the same names, so the weights of an old folder load into a module that is built in code."""
    folder, expected = FORMAT_1 / "tagger", json.loads((FORMAT_1 / "expected.json").read_text())
    with pytest.raises(
        ValueError,
        match=r"config.json must have format_version 2, got 1\. Build the module in code",
    ):
        pe.SequenceTagger.from_pretrained(folder)

    lexicon = pe.Lexicon.load(folder)
    source = pe.FastTextVectors(folder / "vectors-0-toy.bin")
    shared = pe.SourceEmbedding.from_embedding(nn.Embedding(len(lexicon), 3), lexicon)
    hme = pe.HierarchicalMetaEmbedding(
        words=pe.MetaEmbedding.self_attention(
            [pe.SourceEmbedding(source, lexicon), shared], embedding_dim=7
        ),
        subwords=pe.UniqueWords(shared),
        characters=pe.SpelledEmbedding.from_characters(
            lexicon, pe.CharCNN(lexicon.num_characters, 5)
        ),
    )
    encoder = pe.TransformerSequenceEncoder(
        hme.embedding_dim, hidden_size=12, num_layers=1, num_heads=2, feed_forward_size=8
    )
    decoder = pe.CRFDecoder(12, len(TAGS), constraints=pe.Constraints.bio(TAGS))
    tagger = pe.SequenceTagger(pe.UniqueWords(hme), TAGS, encoder=encoder, decoder=decoder)
    load_model(tagger, folder / "model.safetensors")
    tagger.eval().save_pretrained(tmp_path)
    for one in (tagger, pe.SequenceTagger.from_pretrained(tmp_path)):
        assert one.predict([*SENTENCES, NEW_WORDS, []]) == expected["tags"]
        with torch.no_grad():
            emissions = one.emissions(*one.encode(SENTENCES[:1]))[0]
        torch.testing.assert_close(
            emissions, torch.tensor(expected["emissions"]), rtol=0, atol=2e-5
        )


def test_a_model_of_transformers_is_told_apart(tmp_path: Path) -> None:
    tiny_model("bert").save_pretrained(tmp_path)
    rule = r"config\.json must name a class, as save_pretrained does, got a model of transformers \('bert'; Pretrained"
    with pytest.raises(ValueError, match=rule):
        pe.SequenceTagger.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(
        ValueError, match=r"config\.json must name a class, as save_pretrained does, got none$"
    ):
        pe.SequenceTagger.from_pretrained(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"It was not written by save_pretrained, or only in part"
    ):
        pe.SequenceTagger.from_pretrained(tmp_path)
    with pytest.raises(
        ValueError, match=r"^name_or_folder must name a folder or a repository on the hub, got ''$"
    ):
        pe.SequenceTagger.from_pretrained("")


# --- no code from a folder ---------------------------------------------------------------------------------------


PAIRS = [(SENTENCES[0], SENTENCES[1]), (SENTENCES[2], SENTENCES[2]), (SENTENCES[1], NEW_WORDS)]


class Evil:
    """What a pickle may hold: it runs when it is opened."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return exec, (f"open({str(self.mark)!r}, 'w').close()",)


@pytest.fixture
def evil(tmp_path: Path) -> tuple[Path, Path]:
    """A folder that opens, with every way of bringing code that others know; and the file that the code would make."""
    folder, mark = tmp_path / "evil", tmp_path / "mark"
    encoder = pe.PretrainedWordEncoder(
        tiny_model("bert"), word_piece_tokenizer(), fusion=pe.ScalarMix(4)
    )
    pe.PairClassifier(encoder, ["no", "yes"], hidden_size=5).save_pretrained(folder)
    shutil.copytree(folder, tmp_path / "good")
    source = f"open({str(mark)!r}, 'w').close()\nclass Evil: pass\n"
    names = (
        "__init__",
        "modeling_evil",
        "tokenization_evil",
        "configuration_evil",
        "conftest",
        "sitecustomize",
    )
    for name in (*names, "setup"):
        (folder / f"{name}.py").write_text(source)
    for name in (
        "pytorch_model.bin",
        "model.pkl",
        "model.pt",
        "training_args.bin",
        "checkpoint.pt",
    ):
        (folder / name).write_bytes(pickle.dumps(Evil(mark)))
    config = json.loads((folder / "config.json").read_text())
    model = config["config"]["embedder"]["config"]["model"]
    classes = {"AutoConfig": "configuration_evil.Evil", "AutoModel": "modeling_evil.Evil"}
    config["auto_map"] = model["auto_map"] = classes
    for key in ("attn_implementation", "_attn_implementation", "_attn_implementation_internal"):
        model[key] = "evil/kernel"
    (folder / "config.json").write_text(json.dumps(config))
    return folder, mark


def test_no_code_from_a_folder_is_run(
    evil: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.integrations import hub_kernels

    folder, mark = evil
    pickle.loads((folder / "model.pkl").read_bytes())
    assert mark.exists(), "it would run"
    mark.unlink()

    def refuse(*args: object, **options: object) -> None:
        raise AssertionError("asked, fetched or unpickled")

    monkeypatch.setattr("builtins.input", refuse)
    monkeypatch.setattr(torch, "load", refuse)
    monkeypatch.setattr(hub_kernels, "get_kernel", refuse)
    monkeypatch.setattr(hub_kernels, "load_and_register_attn_kernel", refuse, raising=False)
    path, modules = list(sys.path), set(sys.modules)
    again = PretrainedModule.from_pretrained(folder)
    assert again.predict(PAIRS) == pe.PairClassifier.from_pretrained(
        folder.parent / "good"
    ).predict(PAIRS)
    assert again.embedder.model.config._attn_implementation in ("sdpa", "eager")
    assert not mark.exists()
    assert sys.path == path
    assert not any("evil" in name for name in set(sys.modules) - modules)
    again.save_pretrained(folder.parent / "clean")
    assert "evil" not in (folder.parent / "clean" / "config.json").read_text()


def test_a_tokenizer_of_a_folder_brings_no_code(
    evil: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, mark = evil
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda question="": asked.append(question) or "y")
    path = folder / "tokenizer-0-tokenizer_config.json"
    settings = json.loads(path.read_text())
    settings |= {
        "tokenizer_class": "EvilTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_evil.Evil", None]},
    }
    path.write_text(json.dumps(settings))
    reseal(folder)
    with pytest.raises(
        ValueError, match=r"the tokenizer's files must be whole, got ValueError: .*custom code"
    ):
        PretrainedModule.from_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["config"]["embedder"]["files"]["tokenizer-tokenization_evil.py"] = "tokenization_evil.py"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        ValueError, match=r"files must be among .* got \['tokenizer-tokenization_evil.py'\]"
    ):
        PretrainedModule.from_pretrained(folder)
    assert not asked
    assert not mark.exists()


@pytest.mark.parametrize(
    "name", ["Popen", "builtins.eval", "torch.nn.Linear", "OrderedDict", "antigravity"]
)
def test_classes_are_those_that_the_program_has(name: str, tmp_path: Path) -> None:
    """A name is looked up among the library's kinds of class, whatever else this program has imported."""
    build_tagger().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["config"]["embedder"] = {
        "class": name,
        "config": {"args": ["touch", str(tmp_path / "mark")]},
        "files": {},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    modules = set(sys.modules)
    with pytest.raises(
        ValueError, match=rf"class must be one that this program has imported, got '{name}'"
    ):
        pe.SequenceTagger.from_pretrained(tmp_path)
    assert set(sys.modules) == modules
    assert not (tmp_path / "mark").exists()


def test_an_architecture_is_a_model_of_transformers(tmp_path: Path) -> None:
    pe.PretrainedWordEncoder(tiny_model("bert")).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for name in ("pipeline", "AutoModel", "Trainer", "os"):
        config["config"]["architecture"] = name
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(
            ValueError,
            match=rf"config.json must .* architecture must name a model of transformers, got '{name}'$",
        ):
            pe.PretrainedWordEncoder.from_pretrained(tmp_path)
