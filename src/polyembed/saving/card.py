"""Model cards: the ``README.md`` of a shared model."""

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
TEMPLATE = """---
{{ card_data }}
---

# {{ title }}

A `{{ class_name }}` of polyembed {{ versions.polyembed }}.

```python
from {{ home }} import {{ class_name }}

model = {{ class_name }}.from_pretrained("{{ repo_id }}", revision=None)  # set a commit to pin it
```

## Model

{% for name, fact in facts %}- {{ name }}: {{ fact }}
{% endfor %}
## Training

{% for name, fact in training %}- {{ name }}: {{ fact or "not stated" }}
{% endfor %}
## Results

{% if scores %}| data | split | metric | mode | value |
| --- | --- | --- | --- | --- |
{% for one in scores %}| {{ one.data }} | {{ one.split or "not stated" }} | {{ one.metric }} | {{ one.mode or "" }} | \
{{ "%g" % one.value }} |
{% endfor %}{% else %}Not stated.
{% endif %}
{% if notes %}## Notes

{{ notes }}

{% endif %}## Versions

{% for name, number in versions.items() %}- {{ name }} {{ number }}
{% endfor %}"""


class CardScore(NamedTuple):
    """One figure of a model card.

    Attributes:
        metric: ``"f1"``, ``"accuracy"``, or another name.
        value: The figure; a share in [0, 1] for the library's own metrics.
        data: The name of the data set.
        split: The part of the data set, such as ``"test"``.
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
    """Return the text of a ``README.md``, with a YAML header for hubs.

    The card lists the module's class, parts, parameters, labels and vector files. Facts about
    training that are not given here are listed as "not stated".

    Args:
        module: The model.
        name: A title; the class's name if None.
        repo_id: ``owner/name`` of the repository, for the code example.
        languages: Codes: ``"es"``, ``"hi-Latn"``.
        license: The model's licence, as hubs spell it: ``"apache-2.0"``, ``"cc-by-sa-3.0"``.
        base_model: A repository that the model was tuned from.
        sources: Pretrained vectors, encoders and dictionaries, each with its licence; None = not
            known.
        data: The training data, each set with its licence; None = not known. Names like
            ``owner/name`` are data sets of the hub.
        scores: Figures.
        seed: The seed of the training, or several.
        notes: More text in Markdown, such as limits of the model.

    Returns:
        The card, for ``save_pretrained(card=...)`` and ``push_to_hub(card=...)``.

    Raises:
        TypeError: A string where several are expected, a score that is not a `CardScore`, or
            sources or data that are not a mapping.
        ValueError: A wrong language code, a figure that is not finite, or an F1 without its mode.

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
    from huggingface_hub import EvalResult, ModelCard, ModelCardData

    _check_languages(languages)
    for i, score in enumerate(scores):
        _check_score(f"scores[{i}]", score)
    title = _line(name or class_name(module))
    tags, labels = getattr(module, "tags", None), getattr(module, "labels", None)
    task = "token-classification" if tags else "text-classification" if labels else None
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
    header: dict[str, Any] = {
        "language": list(languages) or None,
        "license": license,
        "library_name": "polyembed",
        "pipeline_tag": task,
        "base_model": base_model,
        "datasets": [one for one in data or () if REPOSITORY.fullmatch(one)] or None,
        "tags": ["polyembed", class_name(module)],
        **({"model_name": title, "eval_results": results} if results else {}),
    }
    seeds = [] if seed is None else seed if isinstance(seed, Iterable) else [seed]
    training = [
        ("Languages", ", ".join(languages)),
        ("Licence of the model", license),
        *([("Tuned from", base_model)] if base_model else []),
        ("Sources", _licences("sources", sources)),
        ("Training data", _licences("data", data)),
        ("Seed", ", ".join(map(str, seeds))),
    ]
    home = type(module).__module__
    versions = {"polyembed": __version__, "torch": version("torch")}
    if any(_encoders(module)):
        versions["transformers"] = version("transformers")
    card = ModelCard.from_template(
        ModelCardData(**{key: value for key, value in header.items() if value is not None}),
        template_str=TEMPLATE,
        title=title,
        class_name=class_name(module),
        home=".".join(home.split(".")[:2]) if home.startswith("polyembed.") else home,
        repo_id=repo_id or "<this repository, or a folder>",
        facts=list(_facts(module)),
        training=training,
        scores=[
            score._replace(data=_cell(score.data), metric=_cell(score.metric)) for score in scores
        ],
        notes=None if notes is None else notes.strip(),
        versions=versions,
    )
    return str(card).strip() + "\n"


def _check_languages(languages: Sequence[str]) -> None:
    if isinstance(languages, str):
        raise TypeError(must("languages", "be a sequence of codes", f"the string {languages!r}"))
    for i, code in enumerate(languages):
        good = isinstance(code, str) and LANGUAGE.fullmatch(code) is not None
        require(good, f"languages[{i}]", "be a code, as 'es' or 'hi-Latn'", repr(code))


def _check_score(name: str, score: object) -> None:
    if not isinstance(score, CardScore):
        raise TypeError(must(name, "be a CardScore", class_name(score)))
    number = (
        isinstance(score.value, int | float)
        and not isinstance(score.value, bool)
        and math.isfinite(score.value)
    )
    require(number, f"{name}.value", "be a finite number", repr(score.value))
    for field in ("metric", "data"):
        text = getattr(score, field)
        require(
            isinstance(text, str) and bool(text.strip()), f"{name}.{field}", "be a name", repr(text)
        )
    counted = score.metric.lower() != "f1" or score.mode is not None
    require(counted, f"{name}.mode", "say how an F1 counts entities: 'conll' or 'strict'", None)


def _facts(module: nn.Module) -> Iterator[tuple[str, str]]:
    """List what the module knows of itself, without paths of this machine."""
    parts = ", ".join(f"`{name}`: {class_name(part)}" for name, part in module.named_children())
    if parts:
        yield "Parts", parts
    for kind in ("tags", "labels"):
        names = getattr(module, kind, None)
        if names:
            yield kind.capitalize(), " ".join(f"`{_line(str(name))}`" for name in names)
    for title, found in (
        ("Vectors", _vectors(module)),
        ("Encoders of transformers", _encoders(module)),
    ):
        names = ", ".join(dict.fromkeys(found))
        if names:
            yield title, names
    parameters = list(module.parameters())
    trained = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
    yield (
        "Parameters",
        f"{sum(parameter.numel() for parameter in parameters):,}, of which {trained:,} train",
    )


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
    kinds = (
        getattr(getattr(part, "config", None), "model_type", None) for part in module.modules()
    )
    return (f"`{kind}`" for kind in kinds if kind)


def _licences(field: str, named: Mapping[str, str | None] | None) -> str:
    if not (named is None or isinstance(named, Mapping)):
        raise TypeError(must(field, "be names with their licences, as {'SAGT': None}", repr(named)))
    return "; ".join(
        f"{_line(key)} (licence: {_line(value or 'not stated')})"
        for key, value in (named or {}).items()
    )


def _line(text: str) -> str:
    """Return a name on one line."""
    return " ".join(text.split())


def _cell(text: str) -> str:
    return _line(text).replace("|", "\\|")
