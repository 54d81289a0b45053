"""Looking at results: whether differences are sure, and which labels are taken for which."""

from polyembed.analysis.confusion import bio_confusion, plot_confusion
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
    "Significance",
    "approximate_randomization",
    "bio_confusion",
    "paired_bootstrap",
    "plot_confusion",
    "sentence_counts",
    "sign_test",
    "significance_table",
]
