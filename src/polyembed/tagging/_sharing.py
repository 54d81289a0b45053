"""What several taggers hold in common and none of them trains: one object instead of equal ones."""

import filecmp
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeGuard, TypeVar

import torch
from torch import Tensor, nn

from polyembed._pretrained import Configurable, Detachable, VectorFiles
from polyembed.embeddings.source import SourceEmbedding
from polyembed.embeddings.spelled import SpelledEmbedding
from polyembed.embeddings.word_embedder import WordEmbedder
from polyembed.tagging.tagger import SequenceTagger
from polyembed.text.lexicon import Lexicon

Shared = TypeVar("Shared")


def share_frozen_parts(members: Iterable[SequenceTagger]) -> None:
    """Replace what a member holds by its equal in an earlier one: in memory, and in a saved folder.

    Lexicons; the sources of vectors and spellings (files by what they hold); word embedders without anything to
    train, and tables of spellings, so that a new word is looked up or spelled once; then whatever other parameter
    is frozen. Tensors on the meta device have no content: there, a table of spellings is known by its words alone.
    """
    shelf = _Shelf()
    for member in members:
        shelf.share(member)


def built_alike(one: Any, other: Any) -> bool:
    """Tell whether the same constructor call gives both, files compared by what they hold."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, Detachable):
        return built_alike(one.value, other.value)
    if isinstance(one, Lexicon):
        return _same_lexicon(one, other)
    if isinstance(one, VectorFiles) and not _same_files(one, other):
        return False
    if isinstance(one, Configurable):
        if type(one).write_files not in (Configurable.write_files, VectorFiles.write_files):
            return False  # what its files hold is unknown
        return built_alike(one.get_config(), other.get_config())
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(built_alike(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(built_alike, one, other))
    return isinstance(one, bool | int | float | str) and one == other


class _Shelf:
    """The parts of earlier members."""

    def __init__(self) -> None:
        self.lexicons: list[Lexicon] = []
        self.sources: list[Any] = []
        self.embedders: list[WordEmbedder] = []
        self.tables: list[SpelledEmbedding] = []
        self.tensors: dict[tuple[object, ...], list[nn.Parameter]] = {}

    def share(self, member: SequenceTagger) -> None:
        """Take from the shelf what the member has an equal of, then put its own parts there."""
        member._vocabularies()  # its embedder catches up with its lexicon
        if member.lexicon is not None:
            member.lexicon = _find(self.lexicons, member.lexicon)
        for module in member.modules():
            if isinstance(module, SourceEmbedding) and module.source is not None:
                module.source = _find(self.sources, module.source)
            elif isinstance(module, SpelledEmbedding):
                module.spelling = _find(self.sources, module.spelling)
        _share_embedders(member, _Choice(self.embedders, _same_embedder))
        spelled = [module for module in member.modules() if isinstance(module, SpelledEmbedding)]
        tables = _Choice(self.tables, _same_table)
        for embedder in spelled:
            embedder.table = tables.equal_of(embedder).table
        self._share_tensors(member)
        self.embedders += [module for module in member.modules() if _is_frozen_embedder(module)]
        self.tables += spelled
        for parameter in member.parameters():
            if not parameter.requires_grad and not parameter.is_meta:
                self.tensors.setdefault(_kind(parameter), []).append(parameter)

    def _share_tensors(self, member: nn.Module) -> None:
        choices: dict[tuple[object, ...], _Choice[nn.Parameter]] = {}
        for module in member.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                if not parameter.requires_grad and not parameter.is_meta:
                    kind = _kind(parameter)
                    choice = choices.setdefault(kind, _Choice(self.tensors.get(kind, []), torch.equal))
                    setattr(module, name, choice.equal_of(parameter))


class _Choice(Generic[Shared]):
    """Equals for the parts of one member, a different one for each, so that what is two in a member stays two."""

    def __init__(self, known: Sequence[Shared], same: Callable[[Any, Any], bool]) -> None:
        self.known = known
        self.same = same
        self.chosen: list[tuple[Shared, Shared]] = []

    def equal_of(self, part: Shared) -> Shared:
        """Give a part of an earlier member, or the part itself."""
        for old, new in self.chosen:
            if old is part:
                return new
        free = (other for other in self.known if not any(other is new for _, new in self.chosen))
        equal = next((other for other in free if self.same(part, other)), part)
        self.chosen.append((part, equal))
        return equal


def _share_embedders(parent: nn.Module, choice: "_Choice[WordEmbedder]") -> None:
    """Replace the largest parts that can be: what is inside of them goes along."""
    for name, child in list(parent._modules.items()):  # every name of a child that has several
        if _is_frozen_embedder(child) and (equal := choice.equal_of(child)) is not child:
            setattr(parent, name, equal)
            choice.chosen += [(part, part) for part in equal.modules() if isinstance(part, WordEmbedder)]
        elif child is not None:
            _share_embedders(child, choice)


def _find(known: list[Shared], part: Shared) -> Shared:
    """Give the equal of a part, or the part itself, known from now on."""
    equal = next((other for other in known if built_alike(part, other)), None)
    if equal is None:
        known.append(part)
    return part if equal is None else equal


def _is_frozen_embedder(module: nn.Module | None) -> TypeGuard[WordEmbedder]:
    return isinstance(module, WordEmbedder) and not any(part.requires_grad for part in module.parameters())


def _kind(tensor: Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.dtype, tensor.device


def _same_embedder(one: WordEmbedder, other: WordEmbedder) -> bool:
    """Tell whether two word embedders without anything to train are one in all they do, now and with words to come."""
    return built_alike(one, other) and _same_state(one, other)


def _same_table(one: SpelledEmbedding, other: SpelledEmbedding) -> bool:
    alike = built_alike(one.spelling, other.spelling) and built_alike(one.table.get_config(), other.table.get_config())
    return alike and (one.table.weight.is_meta or _same_state(one.table, other.table))


def _same_state(one: nn.Module, other: nn.Module) -> bool:
    state, other_state = one.state_dict(), other.state_dict()
    return state.keys() == other_state.keys() and all(
        not tensor.is_meta and _kind(tensor) == _kind(other_state[name]) and torch.equal(tensor, other_state[name])
        for name, tensor in state.items()
    )


def _same_lexicon(one: Lexicon, other: Lexicon) -> bool:
    options = [(x.words(), x.spelling.characters, x.lowercase_fallback, x.normalization) for x in (one, other)]
    return options[0] == options[1]


def _same_files(one: VectorFiles, other: VectorFiles) -> bool:
    files, others = one.files(), other.files()
    return files.keys() == others.keys() and all(_same_bytes(path, others[name]) for name, path in files.items())


def _same_bytes(path: Path, other: Path) -> bool:
    try:
        return path == other or filecmp.cmp(path, other, shallow=False)
    except OSError:  # a file that is gone since can still be in use
        return False
