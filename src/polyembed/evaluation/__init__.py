"""Comparing systems: significance, layer ranking, efficiency, representations, confusion, pictures."""

from polyembed.evaluation.compare import Build, Corpus, SystemRun
from polyembed.evaluation.confusion import bio_confusion
from polyembed.evaluation.efficiency import EfficiencyReport, MeasuredModel, efficiency_report
from polyembed.evaluation.layers import ParallelScores, layer_weights, parallel_cosine, rank_layers
from polyembed.evaluation.plots import (
    plot_confusion,
    plot_efficiency,
    plot_layer_weights,
    plot_layers,
    plot_representations,
    plot_scores,
    plot_source_attention,
)
from polyembed.evaluation.protocols import run_code_switched, run_joint, run_zero_shot
from polyembed.evaluation.representations import (
    Correlation,
    RepresentationDistances,
    collect_hidden_states,
    gain_correlation,
    project_2d,
    representation_distances,
)
from polyembed.evaluation.results import ProtocolResult, gain_table, merge_results
from polyembed.evaluation.significance import (
    BootstrapSignificance,
    Significance,
    approximate_randomization,
    paired_bootstrap,
    sentence_counts,
    sign_test,
    significance_table,
)
from polyembed.evaluation.sweep import SweepResult, sweep_layers

__all__ = [
    "BootstrapSignificance",
    "Build",
    "Corpus",
    "Correlation",
    "EfficiencyReport",
    "MeasuredModel",
    "ParallelScores",
    "ProtocolResult",
    "RepresentationDistances",
    "Significance",
    "SweepResult",
    "SystemRun",
    "approximate_randomization",
    "bio_confusion",
    "collect_hidden_states",
    "efficiency_report",
    "gain_correlation",
    "gain_table",
    "layer_weights",
    "merge_results",
    "paired_bootstrap",
    "parallel_cosine",
    "plot_confusion",
    "plot_efficiency",
    "plot_layer_weights",
    "plot_layers",
    "plot_representations",
    "plot_scores",
    "plot_source_attention",
    "project_2d",
    "rank_layers",
    "representation_distances",
    "run_code_switched",
    "run_joint",
    "run_zero_shot",
    "sentence_counts",
    "sign_test",
    "significance_table",
    "sweep_layers",
]
