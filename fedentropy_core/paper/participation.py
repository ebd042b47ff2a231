"""Who takes part where devices differ in size (case 3): how often devices are kept, and how many images that is."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedentropy_core.report.frame import cell, same_seeds
from fedentropy_core.report.looks import DATASET_NAMES, NAMES
from fedentropy_core.report.partitions import label_counts
from fedentropy_core.report.tables import Shown
from fedentropy_core.runs.record import RunRecord

VARIANTS = ("fedavg", "fedavg+entropy")
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


def participation_table(runs: pd.DataFrame, datasets: Sequence[str]) -> pd.DataFrame:
    """Case 3, FedAvg and FedEntropy: means over the seeds that both have."""
    rows, shared = [], same_seeds(runs, VARIANTS)
    for dataset in datasets:
        for variant in VARIANTS:
            found = cell(shared, dataset, 3, variant)["record"]
            if len(found):
                means = pd.DataFrame([kept_by_size(record) for record in found]).mean()
                rows.append({"dataset": dataset, "variant": variant, **means, "seeds": len(found)})
    return pd.DataFrame(rows, columns=["dataset", "variant", "images a round", *QUARTERS, "seeds"])


def participation_text(table: pd.DataFrame) -> Shown:
    """The table with names in place of keys and shares in percent."""
    text = {name: table[name].map("{:.1%}".format) for name in QUARTERS}
    shown = table.assign(**text, **{"images a round": table["images a round"].map("{:.0f}".format)})
    shown = shown.assign(variant=table["variant"].map(NAMES), dataset=table["dataset"].map(DATASET_NAMES))
    return Shown(shown.rename(columns={"dataset": "data", "variant": "method"}))
