"""What the paper says of the method itself, observed: of entropy and accuracy, and of the cases."""

import numpy as np
import pandas as pd

from fedentropy_core.extras import needs
from fedentropy_core.paper.heterogeneity import index_table
from fedentropy_core.paper.protocol import CONFIDENCE
from fedentropy_core.paper.study import PAPER_CASES
from fedentropy_core.report.looks import DATASET_NAMES
from fedentropy_core.report.statistics import paired_difference
from fedentropy_core.runs.record import RunRecord

with needs("report"):
    from scipy import stats

Found = tuple[bool | None, str]
NEIGHBOURS = 20  # rounds around one, by whose mean its accuracy is judged
FIRST = 100  # rounds in which everything still rises


def entropy_and_accuracy(frame: pd.DataFrame) -> Found:
    """FedAvg's draws do not depend on the soft labels, so their entropy varies by chance: are rounds of higher entropy
    more accurate than their neighbours? Spearman's correlation in each run, over data sets, cases and seeds."""
    correlations = [
        correlation
        for record in frame.loc[frame["variant"] == "fedavg", "record"]
        if not np.isnan(correlation := round_correlation(record))
    ]
    if len(correlations) < 2:
        return None, "no runs of FedAvg"
    effect = paired_difference(np.array(correlations))
    low, high = effect.interval(CONFIDENCE)
    why = f"FedAvg's rounds, entropy and accuracy above its neighbours': correlation {effect.mean:.2f} "
    why += f"({low:.2f} to {high:.2f}, {len(correlations)} runs)"
    return bool(low > 0) if low > 0 or high < 0 else None, why


def round_correlation(record: RunRecord) -> float:
    """Spearman's, of the entropy of who is averaged and the accuracy less the mean of the rounds around it."""
    rounds = record.rounds
    around = rounds["accuracy"].rolling(NEIGHBOURS + 1, center=True).mean()
    table = pd.DataFrame({"entropy": rounds["entropy_before"], "above": rounds["accuracy"] - around})[FIRST:].dropna()
    if len(table) < NEIGHBOURS or (table.nunique() < 2).any():
        return np.nan
    return float(stats.spearmanr(table["entropy"], table["above"]).statistic)


def heterogeneity_rises(frame: pd.DataFrame) -> Found:
    """Needs no run: the partitions of CIFAR-10 and CIFAR-100, which the paper's Figure 5 shows."""
    distances = index_table(seeds=(0, 1, 2)).set_index(["dataset", "case"])["distance"]
    shown = {d: [float(distances[d, case]) for case in PAPER_CASES] for d in ("cifar10", "cifar100")}
    text = "; ".join(f"{DATASET_NAMES[d]} {' / '.join(f'{x:.2f}' for x in row)}" for d, row in shown.items())
    rises = all(row == sorted(row) for row in shown.values())
    return rises, f"distance of a device's labels from all labels in cases 1 / 2 / 3: {text}"
