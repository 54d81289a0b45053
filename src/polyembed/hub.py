"""What stands beside a model on a hub: the card that says what it is, what went into it, and how it was measured."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from polyembed._checks import class_name, must, require
from polyembed._version import __version__

__all__ = ["CardScore", "model_card"]

LANGUAGE = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*")
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
NOT_STATED = "not stated"


class CardScore(NamedTuple):
    """One figure of a model card.

    Attributes:
        metric: ``"f1"``, ``"accuracy"``, or another name.
        value: The figure; a share in [0, 1] for the library's own metrics.
        data: The name of the data set.
        split: Which part of it: ``"test"``.
        mode: How entities are counted, for ``"f1"``: ``"conll"`` or ``"strict"``.
    """

    metric: str
    value: float
    data: str
    split: str | None = None
    mode: str | None = None


def model_card(
    module: nn.Module,
    *,
    name: str | None = None,
    repo_id: str | None = None,
    languages: Sequence[str] = (),
    license: str | None = None,
    base_model: str | None = None,
    sources: Mapping[str, str | None] | None = None,
    data: Mapping[str, str | None] | None = None,
    scores: Sequence[CardScore] = (),
    seed: int | Sequence[int] | None = None,
    notes: str | None = None,
) -> str:
    """Write the text of a ``README.md``: a YAML header that hubs read, and the same for people.

    What the module itself tells is filled in: class and parts, parameters, tags or labels, the versions that
    wrote it. The rest is what you say; what you leave out stands as "not stated", never as a guess.

    Args:
        module: What is shared.
        name: A title; the class's name if None.
        repo_id: ``owner/name`` of the repository, for the line that opens it.
        languages: Codes: ``"es"``, ``"hi-Latn"``.
        license: Of the model, as hubs spell it: ``"apache-2.0"``, ``"cc-by-sa-3.0"``.
        base_model: A repository that the model was tuned from.
        sources: Pretrained vectors, encoders and dictionaries that went in, each with its licence; None = not known.
        data: What it was trained on, each with its licence; None = not known. Names like ``owner/name`` are data sets
            of the hub.
        scores: Figures.
        seed: The seed of the training, or several.
        notes: More for people, in Markdown: limits, what it must not be used for.

    Returns:
        The card, for ``save_pretrained(card=...)`` and ``push_to_hub(card=...)``.

    Raises:
        TypeError: A string in the place of several, scores that are no `CardScore`, or sources and data that are no
            mappings.
        ValueError: No code of a language, a figure that is not finite, or an F1 without its mode.

    Example:
        >>> from polyembed import Lexicon, SequenceTagger, SourceEmbedding
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> words = SourceEmbedding.from_embedding(nn.Embedding(4, 8), lexicon)
        >>> tagger = SequenceTagger(words, ["X", "VERB"])
        >>> card = model_card(tagger, languages=["es", "en"], scores=[CardScore("accuracy", 0.9, "SAGT", "test")])
        >>> print(card[:100])
        ---
        language:
        - es
        - en
        library_name: polyembed
        pipeline_tag: token-classification
        tags:
        - polyembed
    """
    if isinstance(languages, str):
        raise TypeError(must("languages", "be a sequence of codes", f"the string {languages!r}"))
    for i, code in enumerate(languages):
        good = isinstance(code, str) and LANGUAGE.fullmatch(code) is not None
        require(good, f"languages[{i}]", "be a code, as 'es' or 'hi-Latn'", repr(code))
    for field, named in (("sources", sources), ("data", data)):
        if not (named is None or isinstance(named, Mapping)):
            raise TypeError(must(field, "be names with their licences, as {'SAGT': None}", repr(named)))
    sources, data = dict(sources or {}), dict(data or {})
    scores = list(scores)
    for i, score in enumerate(scores):
        _check_score(f"scores[{i}]", score)
    title = _line(name or class_name(module))
    header = _header(module, title, languages, license, base_model, data, scores)
    blocks = [
        f"# {title}",
        f"A `{class_name(module)}` of polyembed {__version__}.",
        _use(module, repo_id),
        "## What it is\n\n" + _table(("", ""), _facts(module)),
        "## What went in\n\n" + "\n".join(_ingredients(languages, license, base_model, sources, data, seed)),
        "## Results\n\n" + _results(scores),
        *([] if notes is None else ["## Notes\n\n" + notes.strip()]),
        "## Versions\n\n" + "\n".join(f"- {package} {number}" for package, number in _versions(module)),
    ]
    return f"---\n{header.strip()}\n---\n\n" + "\n\n".join(blocks) + "\n"


def _check_score(name: str, score: object) -> None:
    if not isinstance(score, CardScore):
        raise TypeError(must(name, "be a CardScore", class_name(score)))
    number = isinstance(score.value, int | float) and not isinstance(score.value, bool) and math.isfinite(score.value)
    require(number, f"{name}.value", "be a finite number", repr(score.value))
    for field in ("metric", "data"):
        text = getattr(score, field)
        require(isinstance(text, str) and bool(text.strip()), f"{name}.{field}", "be a name", repr(text))
    counted = score.metric.lower() != "f1" or score.mode is not None
    require(counted, f"{name}.mode", "say how an F1 counts entities: 'conll' or 'strict'", None)


def _header(
    module: nn.Module,
    title: str,
    languages: Sequence[str],
    license: str | None,
    base_model: str | None,
    data: Mapping[str, str | None],
    scores: Sequence[CardScore],
) -> str:
    """Write what hubs read; huggingface_hub knows how each entry is spelt."""
    from huggingface_hub import EvalResult, ModelCardData

    task = _task(module)
    results = [
        EvalResult(
            task_type=task or "other",
            dataset_type=score.data,
            dataset_name=score.data,
            dataset_split=score.split,
            metric_type=score.metric,
            metric_value=score.value,
            metric_args=None if score.mode is None else {"mode": score.mode},
        )
        for score in scores
    ]
    repositories = [one for one in data if REPOSITORY.fullmatch(one)]
    fields: dict[str, Any] = {
        "language": list(languages) or None,
        "license": license,
        "library_name": "polyembed",
        "pipeline_tag": task,
        "base_model": base_model,
        "datasets": repositories or None,
        "tags": ["polyembed", class_name(module)],
        **({"model_name": title, "eval_results": results} if results else {}),
    }
    return str(ModelCardData(**{key: value for key, value in fields.items() if value is not None}).to_yaml())


def _task(module: nn.Module) -> str | None:
    if hasattr(module, "tags"):
        return "token-classification"
    return "text-classification" if hasattr(module, "labels") else None


def _use(module: nn.Module, repo_id: str | None) -> str:
    home = type(module).__module__
    home = ".".join(home.split(".")[:2]) if home.startswith("polyembed.") else home
    where = "<this repository, or a folder>" if repo_id is None else repo_id
    lines = [f"from {home} import {class_name(module)}", ""]
    lines += [f"model = {class_name(module)}.from_pretrained({where!r}, revision=None)  # a commit here pins it"]
    return "```python\n" + "\n".join(lines).replace("'", '"') + "\n```"


def _facts(module: nn.Module) -> Iterator[tuple[str, str]]:
    """Say what the module itself knows, and no path of the machine that it was made on."""
    parts = [f"`{name}`: {class_name(part)}" for name, part in module.named_children()]
    if parts:
        yield "parts", ", ".join(parts)
    for kind in ("tags", "labels"):
        names = getattr(module, kind, None)
        if names:
            yield f"{len(names)} {kind}", " ".join(f"`{_line(str(name))}`" for name in names)
    lexicon = getattr(module, "lexicon", None)
    if lexicon is not None:
        yield "words in the lexicon", f"{len(lexicon):,}"
    vectors = dict.fromkeys(_vectors(module))
    if vectors:
        yield "vectors", ", ".join(vectors)
    encoders = dict.fromkeys(_encoders(module))
    if encoders:
        yield "encoders of transformers", ", ".join(encoders)
    parameters = list(module.parameters())
    trained = sum(p.numel() for p in parameters if p.requires_grad)
    yield "parameters", f"{sum(p.numel() for p in parameters):,}, of which {trained:,} train"


def _vectors(module: nn.Module) -> Iterator[str]:
    for part in module.modules():
        source, missing = getattr(part, "source", None), getattr(part, "missing_source", None)
        if source is not None:
            files = source.files().values() if hasattr(source, "files") else ()
            names = ", ".join(f"`{Path(file).name}`" for file in files)
            yield class_name(source) + (f" ({names})" if names else "")
        elif missing:
            yield f"`{missing}`, to be attached"


def _encoders(module: nn.Module) -> Iterator[str]:
    for part in module.modules():
        kind = getattr(getattr(part, "config", None), "model_type", None)
        if kind:
            yield f"`{kind}`"


def _ingredients(
    languages: Sequence[str],
    license: str | None,
    base_model: str | None,
    sources: Mapping[str, str | None],
    data: Mapping[str, str | None],
    seed: int | Sequence[int] | None,
) -> Iterator[str]:
    def listed(named: Mapping[str, str | None]) -> str:
        return "; ".join(f"{_line(key)} (licence: {_line(value or NOT_STATED)})" for key, value in named.items())

    seeds = [] if seed is None else list(seed) if isinstance(seed, Iterable) else [seed]
    yield f"- Languages: {', '.join(languages) or NOT_STATED}"
    yield f"- Licence of the model: {license or NOT_STATED}"
    if base_model is not None:
        yield f"- Tuned from: {base_model}"
    yield f"- Sources: {listed(sources) or NOT_STATED}"
    yield f"- Training data: {listed(data) or NOT_STATED}"
    yield f"- {'Seeds' if len(seeds) > 1 else 'Seed'}: {', '.join(map(str, seeds)) or NOT_STATED}"


def _results(scores: Sequence[CardScore]) -> str:
    if not scores:
        return f"Figures: {NOT_STATED}."
    rows = [(one.data, one.split or NOT_STATED, one.metric, one.mode or "", f"{one.value:g}") for one in scores]
    return _table(("data", "split", "metric", "mode", "value"), rows)


def _versions(module: nn.Module) -> Iterator[tuple[str, str]]:
    """List what the module was written with; transformers where a model of it is inside."""
    yield "polyembed", __version__
    yield "torch", version("torch")
    if any(True for _ in _encoders(module)):
        yield "transformers", version("transformers")


def _table(columns: Sequence[str], rows: Any) -> str:
    cells = [columns, ["---"] * len(columns), *([_line(cell).replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _line(text: str) -> str:
    """Keep a name on one line."""
    return " ".join(text.split())
