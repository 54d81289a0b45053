"""Taggers of one architecture on one batch, all at once."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from polyembed._checks import class_name
from polyembed.embeddings._table import GrowingTable
from polyembed.tagging._sharing import built_alike
from polyembed.tagging.tagger import SequenceTagger
from polyembed.text.pieces import Pieces

Method = Literal["loss", "decode", "probabilities"]


def obstacle(members: Sequence[SequenceTagger]) -> str | None:
    """Say what keeps the members from running stacked; None if nothing does."""
    first = members[0]
    for i, member in enumerate(members):
        for name in ("encoder", "decoder"):
            if not _alike(getattr(member, name), getattr(first, name)):
                return f"another {name} in members[{i}]"
    return _recurrent_part(_Head(first, "decode"))


def embedders_stack(members: Sequence[SequenceTagger]) -> bool:
    """Tell whether the embedders can run stacked, too."""
    first = members[0].embedder
    return _recurrent_part(first) is None and all(_alike(member.embedder, first) for member in members)


def run_stacked(
    members: Sequence[SequenceTagger],
    method: Method,
    inputs: Tensor | Pieces,
    *arguments: Tensor | None,
    stack_embedders: bool,
) -> Tensor:
    """Call a method of all decoders on their own features: ``(voter, ...)``; the last of the arguments is the mask.

    Parameters are stacked anew at each call, so that they may train; what the members share is used as it is. Tables
    that they do not share are not stacked: each looks up its few rows.
    """
    mask = arguments[-1]
    members[0].check_inputs(inputs, mask)
    num_words = (mask.shape[1],) if isinstance(inputs, Pieces) and mask is not None else ()
    embedders = [member.embedder for member in members]
    heads = [_Head(member, method) for member in members]
    with sdpa_kernel(SDPBackend.MATH):  # the others have no rule for torch.vmap, or none on some devices
        if stack_embedders and _share_tables(embedders):
            vectors, apart = _call(embedders, inputs, *num_words, apart=False)
        else:
            vectors, apart = torch.stack([embedder(inputs, *num_words) for embedder in embedders]), True
        results, apart = _call(heads, vectors, *arguments, apart=apart)
    return results if apart else results.expand(len(members), *results.shape)


class _Head(nn.Module):
    """What comes after a tagger's embedder."""

    def __init__(self, member: SequenceTagger, method: Method) -> None:
        super().__init__()
        self.encoder = member.encoder
        self.decoder = member.decoder
        self.method = method

    def forward(self, vectors: Tensor, *arguments: Tensor | None) -> Any:
        features = vectors if self.encoder is None else self.encoder(vectors, arguments[-1])
        return getattr(self.decoder, self.method)(features, *arguments)


def _call(
    modules: Sequence[nn.Module], x: Tensor | Pieces, *arguments: Tensor | int | None, apart: bool
) -> tuple[Tensor, bool]:
    """Call all modules; `apart` says whether each has its own `x`, on the first axis, and then its own result."""
    tensors = [_tensors(module) for module in modules]
    own = {
        name: torch.stack([part[name] for part in tensors])
        for name, tensor in tensors[0].items()
        if any(part[name] is not tensor for part in tensors)
    }
    if not own and not apart:
        return modules[0](x, *arguments), False

    def call(own: dict[str, Tensor], x: Tensor | Pieces) -> Any:
        return torch.func.functional_call(modules[0], own, (x, *arguments), tie_weights=False)

    in_dims = (0 if own else None, 0 if apart else None)
    return torch.vmap(call, in_dims, randomness="different")(own, x), True


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """Name parameters and buffers, those of a part that stands in two places once."""
    return {
        f"{prefix}.{name}" if prefix else name: tensor
        for prefix, part in module.named_modules()
        for name, tensor in (*part.named_parameters(recurse=False), *part.named_buffers(recurse=False))
    }


def _alike(one: nn.Module | None, other: nn.Module | None) -> bool:
    """Tell whether two modules differ in nothing but the content of their tensors."""
    if one is None or other is None:
        return one is other
    return built_alike(one, other) and _tensors(one).keys() == _tensors(other).keys()


def _share_tables(embedders: Sequence[nn.Module]) -> bool:
    """Tell whether every table of words is one for all."""
    tables = {name: table for name, table in embedders[0].named_modules() if isinstance(table, GrowingTable)}
    others = [(table, embedder.get_submodule(name)) for embedder in embedders[1:] for name, table in tables.items()]
    return all(table.weight is other.weight for table, other in others)


def _recurrent_part(module: nn.Module) -> str | None:
    """Name a part whose kernels torch.vmap has no rule for."""
    recurrent = next((part for part in module.modules() if isinstance(part, nn.RNNBase)), None)
    return None if recurrent is None else f"a part of class {class_name(recurrent)}, which torch.vmap has no rule for"
