"""Looking at results: whether differences are sure, which labels are taken for which, where languages lie."""

from polyembed.analysis.confusion import bio_confusion, plot_confusion
from polyembed.analysis.efficiency import (
    EfficiencyReport,
    Memory,
    Size,
    Speed,
    Subject,
    efficiency_report,
    plot_efficiency,
)
from polyembed.analysis.layers import plot_layers, rank_layers
from polyembed.analysis.representations import (
    CloudDistances,
    Correlation,
    cloud_distances,
    gain_correlation,
    parallel_cosine,
    plot_clouds,
    project,
    representations,
)
from polyembed.analysis.significance import (
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
    "paired_bootstrap",
    "parallel_cosine",
    "plot_clouds",
    "plot_confusion",
    "plot_efficiency",
    "plot_layers",
    "project",
    "rank_layers",
    "representations",
    "sentence_counts",
    "sign_test",
    "significance_table",
]
