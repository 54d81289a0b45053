"""A small module that obeys every law, and twins of it that break one law each."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from cases import CASES, masked, short
from contracts import Case
from torch import Tensor, nn
from toys import SquareOnce

import polyembed as pe
from polyembed._checks import check_last_dim, check_mask
from polyembed.embeddings import AttentionCombiner
from polyembed.functional.masking import masked_mean, select_valid
from polyembed.saving import PretrainedModule


class Sound(PretrainedModule):
    """Each word's projection, plus the mean over its sentence."""

    def __init__(self, dim: int = 5, *, scale: float = 1.0, bias: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, 3, bias=bias)
        self.scale = scale

    def check(self, x: Tensor, mask: Tensor) -> None:
        check_last_dim("x", x, self.linear.in_features)
        check_mask(mask, x.shape[:2])

    def mix(self, y: Tensor, mask: Tensor) -> Tensor:
        return y + masked_mean(y, mask)[:, None]

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        self.check(x, mask)
        y = self.mix(self.linear(select_valid(x, mask)), mask)
        return select_valid(y * self.scale, mask)

    def get_config(self) -> dict[str, Any]:
        return {
            "dim": self.linear.in_features,
            "scale": self.scale,
            "bias": self.linear.bias is not None,
        }


class WritesToInput(Sound):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x.data[~mask] = 0.0
        return super().forward(x, mask)


class HasUnusedParameter(Sound):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.unused = nn.Parameter(torch.ones(2))


class MultipliesByMask(Sound):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.mix(self.linear(x * mask[..., None]), mask) * mask[..., None]


class SelectsAfterTheWeight(Sound):
    """The value is right, but the weight's gradient is 0 times NaN."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return select_valid(self.mix(select_valid(self.linear(x), mask), mask), mask)


class AveragesOverPadding(Sound):
    def mix(self, y: Tensor, mask: Tensor) -> Tensor:
        return y + select_valid(y, mask).mean(1, keepdim=True)


class CentresTheBatch(Sound):
    def mix(self, y: Tensor, mask: Tensor) -> Tensor:
        return y - y.mean(0, keepdim=True)


class HidesState(Sound):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.scale = float(torch.rand(()))


class ForgetsAnArgument(Sound):
    def get_config(self) -> dict[str, Any]:
        return {"dim": self.linear.in_features}


class CopiesItself(Sound):
    def __deepcopy__(self, memo: dict[int, Any]) -> Sound:
        return self


class KeepsAPlainTensor(Sound):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.tables = {"shift": [torch.ones(3)]}


class LooksAtValues(Sound):
    def mix(self, y: Tensor, mask: Tensor) -> Tensor:
        return super().mix(y, mask) if bool(mask.any()) else y


class BringsATensorOfItsOwn(Sound):
    def mix(self, y: Tensor, mask: Tensor) -> Tensor:
        return super().mix(y, mask) + torch.ones(y.shape[-1], device="cpu", dtype=y.dtype)


class LoopsOverRows(Sound):
    def mix(self, y: Tensor, mask: Tensor) -> Tensor:
        return super().mix(torch.stack([row * 1 for row in y]), mask)


class LoopsOverWords(Sound):
    def mix(self, y: Tensor, mask: Tensor) -> Tensor:
        return super().mix(torch.stack([word * 1 for word in y.unbind(1)], 1), mask)


class DetachesAFactor(Sound):
    def mix(self, y: Tensor, mask: Tensor) -> Tensor:
        return y * y.detach()


class DifferentiatesOnce(Sound):
    def mix(self, y: Tensor, mask: Tensor) -> Tensor:
        return SquareOnce.apply(y)


class WidensItsResult(Sound):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = super().forward(x, mask)
        return y if y.dtype == torch.float64 else y.float()


class SumsInLowPrecision(Sound):
    def mix(self, y: Tensor, mask: Tensor) -> Tensor:
        big = y.new_tensor(300.0)
        return y + big - big


class GuessesASize(Sound):
    """In a batch without rows, the size for -1 is ambiguous."""

    def mix(self, y: Tensor, mask: Tensor) -> Tensor:
        return super().mix(y.reshape(len(y), -1).reshape(y.shape), mask)


class TakesAnyMask(Sound):
    def check(self, x: Tensor, mask: Tensor) -> None:
        check_last_dim("x", x, self.linear.in_features)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return super().forward(x, mask.bool())


class ChecksNothing(Sound):
    def check(self, x: Tensor, mask: Tensor) -> None:
        check_mask(mask, x.shape[:2])


class PrefersTheFirst(AttentionCombiner):
    def _attend(self, xs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        projected, weights = super()._attend(xs)
        return projected, weights + (torch.arange(len(xs)) == 0)[:, None, None, None]


class ExtendsByZeros(pe.SourceEmbedding):
    def _with_lexicon(self, lexicon: pe.Lexicon) -> pe.SourceEmbedding:
        extended = super()._with_lexicon(lexicon)
        extended.table.extension.data.zero_()
        return extended


class ExtendsItself(pe.SourceEmbedding):
    def _with_lexicon(self, lexicon: pe.Lexicon) -> pe.SourceEmbedding:
        extended = super()._with_lexicon(lexicon)
        self.table, self.lexicon = extended.table, lexicon
        return self


class CopiesItsTable(pe.SourceEmbedding):
    def _with_lexicon(self, lexicon: pe.Lexicon) -> pe.SourceEmbedding:
        return pe.SourceEmbedding(self.source, lexicon)


def named(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def twin(build: Callable[[], nn.Module]) -> Case:
    return Case("Twin", build, masked("x", 5), padded=("x",), wordwise=True, wrong=(short("x", 5),))


def grown(cls: type[pe.SourceEmbedding]) -> Case:
    source = named("SourceEmbedding")
    return replace(source, grow=lambda lexicon: cls(source.grow(lexicon).source, lexicon))


SOUND = twin(Sound)

SOUND_ELSEWHERE = {
    "the_order_of_sources_is_irrelevant": named("AttentionCombiner"),
    "later_words_are_as_from_the_start": grown(pe.SourceEmbedding),
}

TWINS: dict[str, list[Case]] = {
    "inputs_stay_untouched": [twin(WritesToInput)],
    "every_parameter_gets_a_gradient": [twin(HasUnusedParameter)],
    "padding_content_is_irrelevant": [twin(MultipliesByMask), twin(SelectsAfterTheWeight)],
    "more_padding_changes_nothing": [twin(AveragesOverPadding)],
    "a_row_stands_alone": [twin(CentresTheBatch)],
    "the_order_of_sources_is_irrelevant": [
        replace(named("AttentionCombiner"), build=lambda: PrefersTheFirst((5, 3, 2), 7))
    ],
    "the_state_dict_is_everything": [twin(HidesState)],
    "saving_and_loading_is_exact": [twin(lambda: ForgetsAnArgument(5, scale=2.0))],
    "copies_are_equal_and_apart": [twin(CopiesItself)],
    "moving_leaves_nothing_behind": [twin(KeepsAPlainTensor)],
    "stays_on_its_device_without_waiting": [twin(LooksAtValues), twin(BringsATensorOfItsOwn)],
    "compiles_as_one_graph": [twin(LooksAtValues)],
    "as_many_operations_for_any_batch": [twin(LoopsOverRows), twin(LoopsOverWords)],
    "has_the_right_gradient": [twin(DetachesAFactor)],
    "has_the_right_second_derivative": [twin(DifferentiatesOnce)],
    "low_precision_is_close": [twin(WidensItsResult), twin(SumsInLowPrecision)],
    "sizes_zero_and_one_are_sizes": [twin(GuessesASize)],
    "a_mask_is_bool": [twin(TakesAnyMask)],
    "wrong_inputs_are_refused": [twin(ChecksNothing)],
    "later_words_are_as_from_the_start": [
        grown(ExtendsByZeros),
        grown(ExtendsItself),
        grown(CopiesItsTable),
    ],
}
