"""The paper's comparisons as forest plots: FedEntropy against the others, and what it adds to each method."""

from collections.abc import Callable, Sequence

import pandas as pd

from fedentropy_core.extras import needs
from fedentropy_core.paper.claims import against_baselines, with_entropy
from fedentropy_core.paper.comparisons import Cells, Pair, judge_accuracy
from fedentropy_core.paper.reported import BASELINES
from fedentropy_core.report.forest import forest
from fedentropy_core.report.looks import DATASET_NAMES, NAMES

with needs("report"):
    from matplotlib.figure import Figure

XLABEL = "points of accuracy, last hundred rounds"


def claims_forest(frame: pd.DataFrame, datasets: Sequence[str]) -> Figure:
    """FedEntropy minus each other method of Table 1; the paper's numbers are its Table 1's."""
    return _forest(frame, datasets, against_baselines, "FedEntropy minus another method")


def gains_forest(frame: pd.DataFrame, datasets: Sequence[str]) -> Figure:
    """Each method with FedEntropy minus without; the paper has both by one measure for FedAvg only."""

    def pairs(dataset: str) -> list[Pair]:
        return with_entropy(dataset, BASELINES)

    return _forest(frame, datasets, pairs, "What FedEntropy adds to each method")


def _forest(frame: pd.DataFrame, datasets: Sequence[str], pairs_of: Callable[[str], list[Pair]], note: str) -> Figure:
    """Data sets without any run have no panel; the note names them."""
    cells, there = Cells(frame), set(frame["dataset"])
    shown = [dataset for dataset in datasets if dataset in there] or list(datasets)
    rows = [_row(cells, pair) for dataset in shown for pair in pairs_of(dataset)]
    names = ["panel", "group", "label", "mean", "low", "high", "reported", "error", "remark"]
    note += f"; study “{frame.attrs['study']}”"
    if missing := [DATASET_NAMES[dataset] for dataset in datasets if dataset not in shown]:
        note += f"; no runs of {', '.join(missing)}"
    return forest(pd.DataFrame(rows, columns=names), [DATASET_NAMES[d] for d in shown], XLABEL, note)


def _row(cells: Cells, pair: Pair) -> tuple:
    judged, place = judge_accuracy(cells, pair), (DATASET_NAMES[pair.dataset], f"case {pair.case}", NAMES[pair.worse])
    return (*place, judged.mean, judged.low, judged.high, judged.paper, judged.paper_error, judged.remark)
