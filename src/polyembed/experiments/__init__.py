"""Comparing systems: significance, layer ranking, efficiency, representations, confusion, pictures."""

from polyembed.experiments.compare import Build, Corpus, SystemRun
from polyembed.experiments.confusion import bio_confusion
from polyembed.experiments.efficiency import EfficiencyReport, MeasuredModel, efficiency_report
from polyembed.experiments.layers import ParallelScores, layer_weights, parallel_cosine, rank_layers
from polyembed.experiments.plots import (
    plot_clouds,
    plot_confusion,
    plot_efficiency,
    plot_layer_weights,
    plot_layers,
    plot_scores,
    plot_source_attention,
)
from polyembed.experiments.protocols import code_switched, joint, zero_shot
from polyembed.experiments.representations import (
    CloudDistances,
    Correlation,
    cloud_distances,
    gain_correlation,
    project,
    representations,
)
from polyembed.experiments.results import ProtocolResult, gain_table, merge_results
from polyembed.experiments.significance import (
    BootstrapSignificance,
    Significance,
    approximate_randomization,
    paired_bootstrap,
    sentence_counts,
    sign_test,
    significance_table,
)
from polyembed.experiments.sweep import SweepResult, sweep_layers

__all__ = [
    "BootstrapSignificance",
    "Build",
    "CloudDistances",
    "Corpus",
    "Correlation",
    "EfficiencyReport",
    "MeasuredModel",
    "ParallelScores",
    "ProtocolResult",
    "Significance",
    "SweepResult",
    "SystemRun",
    "approximate_randomization",
    "bio_confusion",
    "cloud_distances",
    "code_switched",
    "efficiency_report",
    "gain_correlation",
    "gain_table",
    "joint",
    "layer_weights",
    "merge_results",
    "paired_bootstrap",
    "parallel_cosine",
    "plot_clouds",
    "plot_confusion",
    "plot_efficiency",
    "plot_layer_weights",
    "plot_layers",
    "plot_scores",
    "plot_source_attention",
    "project",
    "rank_layers",
    "representations",
    "sentence_counts",
    "sign_test",
    "significance_table",
    "sweep_layers",
    "zero_shot",
]
