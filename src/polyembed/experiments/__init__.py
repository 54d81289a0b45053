"""Looking at results: whether differences are sure, which labels are taken for which, where languages lie; pictures."""

from polyembed.experiments.confusion import bio_confusion
from polyembed.experiments.efficiency import (
    EfficiencyReport,
    Memory,
    Size,
    Speed,
    Subject,
    efficiency_report,
)
from polyembed.experiments.layers import layer_weights, rank_layers
from polyembed.experiments.plots import (
    plot_clouds,
    plot_confusion,
    plot_efficiency,
    plot_layer_weights,
    plot_layers,
    plot_representations,
    plot_source_attention,
)
from polyembed.experiments.representations import (
    CloudDistances,
    Correlation,
    cloud_distances,
    gain_correlation,
    parallel_cosine,
    project,
    representations,
)
from polyembed.experiments.significance import (
    BootstrapSignificance,
    Significance,
    approximate_randomization,
    paired_bootstrap,
    sentence_counts,
    sign_test,
    significance_table,
)

__all__ = [
    "BootstrapSignificance",
    "CloudDistances",
    "Correlation",
    "EfficiencyReport",
    "Memory",
    "Significance",
    "Size",
    "Speed",
    "Subject",
    "approximate_randomization",
    "bio_confusion",
    "cloud_distances",
    "efficiency_report",
    "gain_correlation",
    "layer_weights",
    "paired_bootstrap",
    "parallel_cosine",
    "plot_clouds",
    "plot_confusion",
    "plot_efficiency",
    "plot_layer_weights",
    "plot_layers",
    "plot_representations",
    "plot_source_attention",
    "project",
    "rank_layers",
    "representations",
    "sentence_counts",
    "sign_test",
    "significance_table",
]
