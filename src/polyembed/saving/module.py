"""Modules that are saved as a folder, opened again, and shared on a hub with a model card."""

import os
import sys
import tempfile
from abc import ABC
from pathlib import Path
from typing import Any, Self

from torch import nn

from polyembed._checks import class_name, must
from polyembed._version import __version__
from polyembed.saving.config import Configurable, is_plain
from polyembed.saving.loading import find_folder, load_module
from polyembed.saving.writing import CARD_NAME, CONFIG_NAME, save_module, saved_names

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

    The card lists the module's class, parts, labels and parameters. Facts that only the author
    knows come from the arguments.

    Args:
        module: The model.
        repo_id: The name ``owner/name`` of the repository, for the code example.
        notes: More text in Markdown: the training data, sources and licences, limits of the model.
        **data: The arguments of huggingface_hub's ``ModelCardData``: ``language=["es", "en"]``,
            ``license="apache-2.0"``, ``base_model=``, ``datasets=``, ``tags=`` beside the card's
            own, and ``eval_results=`` with ``model_name=``.

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
    header: dict[str, Any] = {
        "library_name": "polyembed",
        "pipeline_tag": task and f"{task}-classification",
        **data,
        "tags": ["polyembed", class_name(module), *(data.get("tags") or ())],
    }
    counts = [(parameter.numel(), parameter.requires_grad) for parameter in module.parameters()]
    facts = {
        "Parts": ", ".join(f"`{k}`: {class_name(part)}" for k, part in module.named_children()),
        "Labels": " ".join(f"`{name}`" for name in names),
        "Parameters": f"{sum(count for count, _ in counts):,}, of which "
        f"{sum(count for count, trains in counts if trains):,} train",
    }
    home = type(module).__module__
    room = ".".join(home.split(".")[:2])
    return TEMPLATE.format(
        header=ModelCardData(**header),
        name=class_name(module),
        version=__version__,
        home=room if hasattr(sys.modules.get(room), class_name(module)) else home,
        repository=repo_id or "<a repository or a folder>",
        facts="\n".join(f"- {title}: {fact}" for title, fact in facts.items() if fact),
        notes=f"\n{notes.strip()}\n" if notes else "",
    )


class PretrainedModule(Configurable, nn.Module, ABC):
    """A module that can be saved as a folder, opened again, and shared on a hub.

    The folder has ``config.json``, ``model-<digest>.safetensors`` and the files of its parts.
    A folder contains no pickle, and loading runs no code from it.
    """

    detachable_parameters: tuple[str, ...] = ()
    """The parameters that are rows of a source: `save_sources=False` leaves them out if frozen."""

    self_saved_modules: tuple[str, ...] = ()
    """The submodules whose tensors `write_files` writes, as transformers saves its own encoders."""

    __repr__ = nn.Module.__repr__  # torch's tree, with the plain arguments by `extra_repr`

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments that are not files; none if it is torch's."""
        # a constructor here would hide that of a torch class among the bases
        return {} if type(self).__init__ is nn.Module.__init__ else super().get_config()

    def extra_repr(self) -> str:
        """Return the constructor's arguments that are plain values, as ``name=value``."""
        try:
            config = self.get_config()
        except TypeError:  # such a module cannot be saved, but it can be printed
            return ""
        return ", ".join(f"{name}={value!r}" for name, value in config.items() if is_plain(value))

    def save_pretrained(
        self,
        folder: str | os.PathLike[str],
        *,
        save_sources: bool = True,
        copy_vectors: bool | None = None,
        card: str | None = None,
    ) -> None:
        """Write the module into a folder; after a failure or a kill, the earlier save is intact.

        One process at a time may save into a folder.

        Args:
            folder: The folder, which is made if missing. Files of an earlier save are replaced or
                removed, other files stay.
            save_sources: Whether to save the frozen rows of pretrained vectors. Without them the
                folder is small, and `SourceEmbedding.attach` must fill the tables after loading.
                It fills them with the source's vectors, also rows that were frozen after training.
                Rows of a table without a source are saved in any case.
            copy_vectors: Whether to save the files of the vectors, from which the loaded module
                makes vectors of unseen words. Public fastText models have several GB; without them
                the folder holds the lexicon's rows only, and `SourceEmbedding.attach` restores the
                rest. A source that has a part without a configuration, such as gensim's
                ``KeyedVectors``, is not saved. The default is the value of `save_sources`.
            card: The text of the folder's ``README.md``; see `polyembed.saving.model_card`. If
                None, the folder keeps its card.

        Raises:
            TypeError: If a part of the module cannot be rebuilt from its configuration.
            ValueError: If a tensor has no values because its source is not attached.
        """
        save_module(
            self,
            Path(folder),
            save_sources=save_sources,
            copy_vectors=save_sources if copy_vectors is None else copy_vectors,
            card=card,
        )

    @classmethod
    def from_pretrained(
        cls,
        name_or_folder: str | os.PathLike[str],
        *,
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
    ) -> Self:
        """Load a saved module from a folder or from the hub, in evaluation mode.

        The digests in `config.json` are compared. Tensors are mapped from the file, not copied.

        Args:
            name_or_folder: A folder, or a repository on the hub.
            revision: A revision on the hub (branch, tag or commit).
            cache_dir: The folder of downloaded files; huggingface_hub's default if None.
            local_files_only: Whether to use downloaded files only, as with ``HF_HUB_OFFLINE=1``.

        Returns:
            The module, with the dtypes it was saved in.

        Raises:
            FileNotFoundError: If no folder and no repository has this name; if the repository is
                not in the cache while offline; or if a file is missing.
            ValueError: If a file is damaged, or the folder has another format version or another
                class.
        """
        folder = find_folder(name_or_folder, revision, cache_dir, local_files_only)
        module = load_module(folder)
        if not isinstance(module, cls):
            raise ValueError(must(str(folder), f"hold a {cls.__name__}", f"a {class_name(module)}"))
        return module

    def push_to_hub(
        self,
        repo_id: str,
        *,
        revision: str | None = None,
        private: bool | None = None,
        commit_message: str = "Upload with polyembed",
        save_sources: bool = True,
        copy_vectors: bool | None = None,
        card: str | None = None,
    ) -> str:
        """Save the module and upload it; files that only the earlier save has are deleted.

        Args:
            repo_id: The name ``owner/name`` of the repository, which is created if missing.
            revision: The branch to commit to.
            private: Whether a new repository is private.
            commit_message: The commit's message.
            save_sources: As in `save_pretrained`.
            copy_vectors: As in `save_pretrained`.
            card: The text of the ``README.md``. If None, the repository keeps its own; a repository
                without one gets `polyembed.saving.model_card` of the module.

        Returns:
            The address of the commit.
        """
        from huggingface_hub import HfApi

        api = HfApi()
        api.create_repo(repo_id, private=private, exist_ok=True)
        if card is None and not api.file_exists(repo_id, CARD_NAME, revision=revision):
            card = model_card(self, repo_id=repo_id)
        old: set[str] = set()
        if api.file_exists(repo_id, CONFIG_NAME, revision=revision):
            old = saved_names(
                Path(api.hf_hub_download(repo_id, CONFIG_NAME, revision=revision)).parent
            )
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(
                folder, save_sources=save_sources, copy_vectors=copy_vectors, card=card
            )
            stale = sorted(old - set(os.listdir(folder)))
            return str(
                api.upload_folder(
                    repo_id=repo_id,
                    folder_path=folder,
                    revision=revision,
                    commit_message=commit_message,
                    delete_patterns=[pattern for name in stale for pattern in (name, f"{name}/*")],
                )
            )
