"""Who takes part where devices differ in size (case 3): how often devices are kept, and how many images that is."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedentropy_core.report.looks import NAMES
from fedentropy_core.report.partitions import label_counts
from fedentropy_core.report.records import DATASET_NAMES, Records
from fedentropy_core.runs.record import RunRecord

METHODS = ("fedavg", "fedavg+entropy")
QUARTERS = ("smallest quarter", "second", "third", "largest quarter")


def kept_by_size(run: RunRecord) -> dict[str, float]:
    """Images of the kept devices in a round, and the share of rounds in which a device of each quarter is kept.

    Devices are put in order of their images and cut into quarters, the smallest first.
    """
    images = label_counts(run.config).sum(axis=1)
    times_kept = np.bincount(np.concatenate(run.rounds["kept"].to_list()), minlength=len(images))
    share = times_kept / len(run.rounds)
    quarters = np.array_split(np.argsort(images, kind="stable"), len(QUARTERS))
    kept = {name: float(share[devices].mean()) for name, devices in zip(QUARTERS, quarters, strict=True)}
    return {"images a round": float(share @ images), **kept}


def participation_table(records: Records, datasets: Sequence[str]) -> pd.DataFrame:
    """Case 3, FedAvg and FedEntropy: means over the seeds that both have."""
    rows, paired = [], records.paired(METHODS)
    for dataset in datasets:
        for method in METHODS:
            if runs := paired.of(dataset, 3, method):
                means = pd.DataFrame([kept_by_size(run) for run in runs]).mean()
                rows.append({"dataset": dataset, "method": method, **means, "seeds": len(runs)})
    return pd.DataFrame(rows, columns=["dataset", "method", "images a round", *QUARTERS, "seeds"])


def participation_text(table: pd.DataFrame) -> pd.DataFrame:
    """The table with names in place of keys and shares in percent."""
    text = {name: table[name].map("{:.1%}".format) for name in QUARTERS}
    shown = table.assign(**text, **{"images a round": table["images a round"].map("{:.0f}".format)})
    shown = shown.assign(method=table["method"].map(NAMES), dataset=table["dataset"].map(DATASET_NAMES))
    return shown.rename(columns={"dataset": "data"})
