"""How unequal the devices' labels are: Figure 5, and measures for it."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedentropy_core.config import RunConfig
from fedentropy_core.datasets import load_dataset
from fedentropy_core.partition import partition
from fedentropy_core.sources import SPECS
from fedentropy_core.studies import PAPER_CASES


def canonical_labels(dataset: str) -> np.ndarray:
    """The training labels of a data set; in canonical order they follow from its class counts, so no data is needed."""
    if dataset == "synthetic":
        return load_dataset("synthetic").train_labels
    spec = SPECS[dataset]
    return np.repeat(np.arange(len(spec.classes)), spec.train // len(spec.classes))


def label_counts(config: RunConfig) -> np.ndarray:
    """[devices, classes]: how many images of each label every device of a run has."""
    labels = canonical_labels(config.dataset)
    parts = partition(labels, config.case, config.devices, config.partition_draw, config.beta)
    return count_labels(labels, parts, int(labels.max()) + 1)


def count_labels(labels: np.ndarray, parts: Sequence[np.ndarray], classes: int) -> np.ndarray:
    return np.stack([np.bincount(labels[part], minlength=classes) for part in parts])


def distance(counts: np.ndarray) -> float:
    """Mean total-variation distance ½·Σ|p_k − p| between a device's labels and all labels, over devices."""
    return measures(counts)["distance"]


def measures(counts: np.ndarray) -> dict[str, float]:
    """Total-variation distance and Kullback-Leibler divergence Σ p_k·ln(p_k/p) of a device's labels from all labels.

    Each as a mean over devices and as a mean weighted by the devices' images.
    """
    images = counts.sum(axis=1)
    share, everyone = counts / images[:, None], counts.sum(axis=0) / counts.sum()
    variation = np.abs(share - everyone).sum(axis=1) / 2
    divergence = (share * np.log(np.where(share > 0, share, everyone) / everyone)).sum(axis=1)
    return {
        "distance": float(variation.mean()),
        "distance, by images": float(np.average(variation, weights=images)),
        "divergence": float(divergence.mean()),
        "divergence, by images": float(np.average(divergence, weights=images)),
    }


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
