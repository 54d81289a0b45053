"""Model cards: the ``README.md`` of a shared model."""

from typing import Any

from torch import nn

from polyembed._checks import class_name
from polyembed._version import __version__

TEMPLATE = """---
{header}
---

# {name}

A `{name}` of polyembed {version}.

```python
from {home} import {name}

model = {name}.from_pretrained("{repository}", revision=None)  # set a commit to pin it
```

{facts}
{notes}"""


def model_card(
    module: nn.Module, *, repo_id: str | None = None, notes: str = "", **data: Any
) -> str:
    """Return the text of a ``README.md`` with a YAML header for hubs.

    The card lists the module's class, parts, labels and parameters. What only the author knows
    comes from the arguments.

    Args:
        module: The model.
        repo_id: ``owner/name`` of the repository, for the code example.
        notes: More text in Markdown: the training data, sources and licences, limits of the model.
        **data: The arguments of huggingface_hub's ``ModelCardData``: ``language=["es", "en"]``,
            ``license="apache-2.0"``, ``base_model=``, ``datasets=``, and ``eval_results=`` with
            ``model_name=``.

    Returns:
        The card, for ``save_pretrained(card=...)`` and ``push_to_hub(card=...)``.

    Example:
        >>> from polyembed import Lexicon, SequenceTagger, SourceEmbedding
        >>> words = SourceEmbedding.from_embedding(nn.Embedding(4, 8), Lexicon(["me", "gusta"]))
        >>> tagger = SequenceTagger(words, ["X", "VERB"])
        >>> print(model_card(tagger, language=["es", "en"], license="mit")[:61])
        ---
        language:
        - es
        - en
        library_name: polyembed
        license: mit
    """
    from huggingface_hub import ModelCardData

    names = list(getattr(module, "tags", None) or getattr(module, "labels", None) or ())
    task = "token" if hasattr(module, "tags") else "text" if hasattr(module, "labels") else None
    header = ModelCardData(
        library_name="polyembed",
        pipeline_tag=task and f"{task}-classification",
        tags=["polyembed", class_name(module)],
        **data,
    )
    counts = [(parameter.numel(), parameter.requires_grad) for parameter in module.parameters()]
    facts = {
        "Parts": ", ".join(f"`{k}`: {class_name(part)}" for k, part in module.named_children()),
        "Labels": " ".join(f"`{name}`" for name in names),
        "Parameters": f"{sum(count for count, _ in counts):,}, of which "
        f"{sum(count for count, trains in counts if trains):,} train",
    }
    home = type(module).__module__
    return TEMPLATE.format(
        header=header,
        name=class_name(module),
        version=__version__,
        home=".".join(home.split(".")[:2]) if home.startswith("polyembed.") else home,
        repository=repo_id or "<a repository or a folder>",
        facts="\n".join(f"- {title}: {fact}" for title, fact in facts.items() if fact),
        notes=f"\n{notes.strip()}\n" if notes else "",
    )
