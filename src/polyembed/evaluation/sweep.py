"""Which lower layer to fuse with the last: one training a layer, seed and system, and the averages of the paper."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from polyembed._checks import class_name, is_count, must, require
from polyembed.encoders.fusion import LastLayer, LayerFusion
from polyembed.evaluation.compare import Build, Corpus
from polyembed.evaluation.protocols import run_code_switched, run_zero_shot
from polyembed.evaluation.results import DIGITS, ProtocolResult
from polyembed.tables import Table, mean_and_deviation
from polyembed.tagging.text_model import TextModel
from polyembed.training.options import DEFAULTS, FitOptions

LAST_LAYER = "last layer"

FusedBuild = Callable[[LayerFusion, Sequence[Any], int], TextModel]
"""A system around a fusion: returns a new, untrained model for it, the training sentences and the seed of a run."""


class SweepResult(NamedTuple):
    """The result of a sweep over lower layers.

    Attributes:
        table: A row for the last layer alone (the paper's baseline), for each fusion beside and
            each lower layer; a column for each of `averages`, then one a language. Means and
            deviations over seeds, between 0 and 1.
        scores: Column -> lower layer, or the name of a row without one -> one score a seed.
        averages: Column -> the languages that it averages: ``average`` over all, ``family`` and
            ``rest``; none where one language is tested.
        best: Column -> the lower layer with the highest mean.
        protocol: All runs, with their predictions.
    """

    table: Table
    scores: dict[str, dict[int | str, list[float]]]
    averages: dict[str, tuple[str, ...]]
    best: dict[str, int]
    protocol: ProtocolResult


def sweep_layers(
    build: FusedBuild,
    source: Corpus,
    targets: Sequence[Corpus] = (),
    options: FitOptions = DEFAULTS,
    *,
    layers: Sequence[int],
    fusion: Callable[[int], LayerFusion],
    beside: Mapping[str, Callable[[], LayerFusion]] | None = None,
    family: Collection[str] | None = None,
    seeds: Sequence[int],
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> SweepResult:
    """Train on the source with each lower layer fused into the last, and test on all languages
    (Chen & Guo 2022).

    Table II of the paper: ``D_X`` fuses layer X and the last one, *last layer* is the baseline
    without fusion. The average over languages includes the source, as the paper's does; `family`
    splits it as the paper's table III (``avg_enf``, ``avg_noenf``). For a ranking without training
    see `polyembed.evaluation.rank_layers`.

    Args:
        build: Makes a new tagger, or a classifier of texts or of pairs, around a fusion, called as
            ``build(fusion, train, seed)``; for example one that opens an encoder and gives it the
            fusion. ``freeze="all"`` there trains fusion and decoder alone.
        source: The language to train on; the first column.
        targets: The languages to transfer to; none for a corpus that is trained and tested on by
            itself, such as code-switched text.
        options: As in `fit`.
        layers: The lower layers to try, as `hidden_states` counts; ``range(1, 12)`` for twelve
            layers, and 12 for the control that fuses the last layer with itself.
        fusion: From a lower layer to a new fusion, ``lambda layer: DLFA(768, layer)``.
        beside: Other fusions by name, ``{"ScalarMix": lambda: ScalarMix(13)}``: rows of their own.
        family: The languages of the source's family, the source among them; no split if None.
        seeds: One run each, of every layer.
        folder: Keeps runs and checkpoints: the same call again continues from there.
        progress: As in `fit`.

    Returns:
        The table, the best layers and all runs.

    Raises:
        ValueError: No layer, one named twice, a family without the source or with a language that
            is not tested, a row or a language with another's name, and what `run_zero_shot` raises.
        TypeError: A layer that is not an integer, a fusion that is not a `LayerFusion`, and the
            errors of `run_zero_shot`.

    Example:
        >>> from transformers import BertConfig, BertModel, BertTokenizer
        >>> from polyembed import DLFA, PretrainedWordEncoder, SequenceTagger, SoftmaxDecoder
        >>> from polyembed.data import TaggedSentence
        >>> tokenizer = BertTokenizer(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "me": 5})
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
        >>> def build(fusion, train, seed):
        ...     encoder = PretrainedWordEncoder(BertModel(BertConfig(vocab_size=6, **sizes)), tokenizer, fusion=fusion)
        ...     return SequenceTagger(encoder, ["X", "V"], decoder=SoftmaxDecoder(8, 2))
        >>> en = [TaggedSentence(("me", "like"), ("X", "V"))] * 4
        >>> de = [TaggedSentence(("mag",), ("V",))]
        >>> result = sweep_layers(build, Corpus("en", en, en, en), [Corpus("de", test=de)],
        ...                       FitOptions(metric="accuracy", num_train_epochs=1),
        ...                       layers=[1], fusion=lambda layer: DLFA(8, layer), seeds=[0])
        >>> result.table.columns, [row[0] for row in result.table.rows], result.best["average"]
        (('system', 'average', 'en', 'de'), ['last layer', 'D_1'], 1)

    Deviations: the paper chooses its best layer by the scores on test; so does `best`, which is for
    the table and not for a fair comparison. The paper has one run; here each average is taken for
    each seed, then over seeds.
    """
    layers = list(layers)
    require(len(layers) > 0, "layers", "hold at least one layer", "none")
    for layer in layers:
        if not is_count(layer):
            raise TypeError(must("layers", "hold whole numbers", repr(layer)))
    require(len(set(layers)) == len(layers), "layers", "be different", layers)
    fusions: dict[int | str, Callable[[], LayerFusion]] = {LAST_LAYER: LastLayer}
    odd = sorted({LAST_LAYER, *(f"D_{layer}" for layer in layers)} & set(beside or {}))
    require(not odd, "beside", "have other names than the rows of the sweep", odd)
    fusions.update(beside or {})
    fusions.update({int(layer): partial(fusion, int(layer)) for layer in layers})
    names = {key: key if isinstance(key, str) else f"D_{key}" for key in fusions}
    systems = {names[key]: _system(build, make) for key, make in fusions.items()}
    languages = [source.language, *(corpus.language for corpus in targets)]
    averages = _averages(languages, family)
    common: dict[str, Any] = {"seeds": seeds, "folder": folder, "progress": progress}
    if targets:
        found = run_zero_shot(systems, source, targets, options, **common)
    else:
        found = run_code_switched(systems, [source], options, **common)
    scores = {
        column: {key: _mean_scores(found, name, members) for key, name in names.items()}
        for column, members in {**averages, **{name: (name,) for name in languages}}.items()
    }
    rows = [
        (name, *(mean_and_deviation(part[key]) for part in scores.values()))
        for key, name in names.items()
    ]
    means = {
        column: {int(layer): sum(part[int(layer)]) for layer in layers}
        for column, part in scores.items()
    }
    best = {column: max(part, key=lambda layer: part[layer]) for column, part in means.items()}
    return SweepResult(Table(("system", *scores), rows, DIGITS), scores, averages, best, found)


def _averages(
    languages: Sequence[str], family: Collection[str] | None
) -> dict[str, tuple[str, ...]]:
    """Name the averages, and the languages of each; the first language is the source."""
    averages = {"average": tuple(languages)} if len(languages) > 1 else {}
    if family is not None:
        odd = sorted(set(family) - set(languages))
        require(not odd, "family", f"hold languages that are tested, {', '.join(languages)}", odd)
        require(languages[0] in family, "family", f"hold the source {languages[0]!r}", list(family))
        averages["family"] = tuple(name for name in languages if name in family)
        averages["rest"] = tuple(name for name in languages if name not in family)
        require(
            len(averages["rest"]) > 0, "family", "leave out a language that is tested", list(family)
        )
    odd = sorted(set(languages) & set(averages))
    require(not odd, "languages", "have other names than the averages", odd)
    return averages


def _mean_scores(result: ProtocolResult, system: str, languages: Sequence[str]) -> list[float]:
    """Average over languages, for each seed."""
    parts = [result.scores(system, language) for language in languages]
    return [sum(part[seed] for part in parts) / len(parts) for seed in parts[0]]


def _system(build: FusedBuild, make: Callable[[], LayerFusion]) -> Build:
    def made(train: Sequence[Any], seed: int) -> TextModel:
        fused = make()
        if not isinstance(fused, LayerFusion):
            raise TypeError(must("fusion", "give a LayerFusion", class_name(fused)))
        return build(fused, train, seed)

    return made
