"""Comparing systems: protocols over seeds, significance, representations, layers, pictures."""

from polyembed.evaluation.annotation import rank_for_annotation
from polyembed.evaluation.layers import rank_layers
from polyembed.evaluation.plots import (
    plot_layer_weights,
    plot_representations,
    plot_source_attention,
)
from polyembed.evaluation.protocols import Corpus, run_code_switched, run_joint, run_zero_shot
from polyembed.evaluation.representations import (
    collect_hidden_states,
    representation_distances,
)
from polyembed.evaluation.results import ProtocolResult
from polyembed.evaluation.significance import (
    approximate_randomization,
    sign_test,
    significance_table,
)

__all__ = [
    "Corpus",
    "ProtocolResult",
    "approximate_randomization",
    "collect_hidden_states",
    "plot_layer_weights",
    "plot_representations",
    "plot_source_attention",
    "rank_for_annotation",
    "rank_layers",
    "representation_distances",
    "run_code_switched",
    "run_joint",
    "run_zero_shot",
    "sign_test",
    "significance_table",
]
