"""How unequal the devices' labels are: Figure 5, and measures for it."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedentropy_core.config import RunConfig
from fedentropy_core.data.catalogue import SPECS
from fedentropy_core.paper.study import PAPER_CASES
from fedentropy_core.report.looks import DATASET_NAMES
from fedentropy_core.report.partitions import label_counts, measures
from fedentropy_core.report.tables import Shown


def counts_by_case(seed: int) -> dict[tuple[str, int], np.ndarray]:
    """The label counts of each data set and case."""
    settings = [(dataset, case) for dataset in SPECS for case in PAPER_CASES]
    return {place: label_counts(RunConfig(dataset=place[0], case=place[1], partition_seed=seed)) for place in settings}


def index_table(seeds: Sequence[int]) -> pd.DataFrame:
    """The measures in each data set and case, mean over the partitions of these seeds."""
    rows = [
        {"dataset": dataset, "case": case, **measures(counts)}
        for seed in seeds
        for (dataset, case), counts in counts_by_case(seed).items()
    ]
    return pd.DataFrame(rows).groupby(["dataset", "case"], sort=False).mean().reset_index()


def index_shown(index: pd.DataFrame) -> Shown:
    """A row a data set and measure, a column a case."""
    long = index.melt(["dataset", "case"], var_name="measure")
    wide = long.pivot(index=["dataset", "measure"], columns="case", values="value").loc[list(index["dataset"].unique())]
    wide = wide.rename(index=DATASET_NAMES, columns="case {}".format).rename_axis(["data", "measure"])
    return Shown(wide.round(3).rename_axis(columns=None).reset_index())


def concentration(counts: np.ndarray) -> dict[str, float]:
    """How few devices hold a label: the largest share s of any label on one device, and for the label that is spread
    the least the effective number of devices, 1/Σs² (n devices with equal shares count as n)."""
    shares = counts / counts.sum(axis=0)
    return {
        "largest share of a label on a device": float(shares.max()),
        "fewest devices to a label": float((1 / (shares**2).sum(axis=0)).min()),
    }


def seeds_table(seeds: Sequence[int]) -> pd.DataFrame:
    """Case 3 by data set and the partition's seed: images a device, and how few devices hold a label."""
    rows = []
    for dataset in SPECS:
        for seed in seeds:
            counts = label_counts(RunConfig(dataset=dataset, case=3, partition_seed=seed))
            images = counts.sum(axis=1)
            sizes = {"fewest images": images.min(), "median": int(np.median(images)), "most images": images.max()}
            rows.append({"dataset": dataset, "seed": seed, **sizes, **concentration(counts)})
    return pd.DataFrame(rows)


def seeds_shown(table: pd.DataFrame) -> Shown:
    """The table with the names of data sets."""
    return Shown(table.assign(dataset=table["dataset"].map(DATASET_NAMES)).rename(columns={"dataset": "data"}).round(2))
