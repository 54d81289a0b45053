"""Every law on every public module, and on modules that break it."""

import pytest
from broken import SOUND, SOUND_ELSEWHERE, TWINS
from cases import CASES
from contracts import APPLIES, LAWS, Case, Law, compiles_as_one_graph
from toys import RUNTIME_TYPES

# Cases compiled in every run, forwards and backwards: one or two members of each family, because
# compiling takes seconds. The slow runs compile the others, forwards only.
COMPILED_OFTEN = {
    "AttentionCombiner",
    "CRFDecoder.loss",
    "CharCNN",
    "MetaEmbedding",
    "PieceMean",
    "SoftmaxDecoder.loss",
    "SourceEmbedding",
    "SpelledEmbedding.transformer",
    "TransformerSequenceEncoder",
}
CLASSES = [case.name.split(".")[0] for case in CASES]
# one case per class, because the others differ in options alone; two for pairs, read in two ways
COMPILED = COMPILED_OFTEN | {"PairClassifier", "PairClassifier.joint"}
COMPILED |= {case.name for i, case in enumerate(CASES) if CLASSES[i] not in CLASSES[:i]}


def pairs(*, excepted: bool) -> list:
    """List the pairs of a law and a case, either the declared exceptions or the other pairs."""
    return [
        pytest.param(
            law,
            case,
            id=f"{name}-{case.name}",
            marks=[pytest.mark.slow] if is_slow(law, case) else [],
        )
        for name, law in LAWS.items()
        for case in CASES
        if APPLIES[name](case) and (name in case.exceptions) == excepted
        if law is not compiles_as_one_graph or case.name in COMPILED
    ]


def is_slow(law: Law, case: Case) -> bool:
    return (
        law is compiles_as_one_graph
        and case.name not in COMPILED_OFTEN
        and law.__name__ not in case.exceptions
    )


@pytest.mark.parametrize(("law", "case"), pairs(excepted=False))
def test_law(law: Law, case: Case):
    if is_slow(law, case):
        compiles_as_one_graph(case, backend="eager")
    else:
        law(case)


@pytest.mark.parametrize(("law", "case"), pairs(excepted=True))
def test_exception_is_needed(law: Law, case: Case):
    with pytest.raises((AssertionError, RuntimeError)):
        law(case)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["HierarchicalMetaEmbedding", "CRFDecoder.loss"])
def test_inductor(name: str):
    compiles_as_one_graph(next(case for case in CASES if case.name == name), backend="inductor")


@pytest.mark.parametrize("name", LAWS)
def test_sound_module_passes(name: str):
    case = SOUND_ELSEWHERE.get(name, SOUND)
    if RUNTIME_TYPES and not APPLIES[name](case):
        pytest.skip("no law while jaxtyping checks annotations")
    assert APPLIES[name](case)
    LAWS[name](case)


@pytest.mark.parametrize(
    ("name", "twin"),
    [
        pytest.param(name, twin, id=f"{name}-{i}")
        for name, twins in TWINS.items()
        for i, twin in enumerate(twins)
    ],
)
def test_broken_twin_is_rejected(name: str, twin: Case):
    with pytest.raises((AssertionError, RuntimeError, ValueError)):
        LAWS[name](twin)


def test_every_law_has_a_twin():
    assert set(TWINS) == set(LAWS)
