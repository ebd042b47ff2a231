"""How unequal the devices' labels are: Figure 5, and a measure for it."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedentropy_core.partition import partition
from fedentropy_core.sources import SPECS

CASES = (1, 2, 3)


def canonical_labels(dataset: str) -> np.ndarray:
    """The training labels of a data set; in canonical order they follow from its class counts."""
    spec = SPECS[dataset]
    return np.repeat(np.arange(len(spec.classes)), spec.train // len(spec.classes))


def label_counts(seed: int, devices: int = 100) -> dict[tuple[str, int], np.ndarray]:
    """For each data set and case, images [device, label]."""
    return {(dataset, case): _counts(dataset, case, devices, seed) for dataset in SPECS for case in CASES}


def index_table(seeds: Sequence[int], devices: int = 100) -> pd.DataFrame:
    """Mean total-variation distance ½·Σ|p_k − p| between a device's labels and all labels, over devices and seeds."""
    rows = [
        (dataset, case, np.mean([_distance(_counts(dataset, case, devices, seed)) for seed in seeds]))
        for dataset in SPECS
        for case in CASES
    ]
    return pd.DataFrame(rows, columns=["dataset", "case", "distance"])


def _counts(dataset: str, case: int, devices: int, seed: int) -> np.ndarray:
    labels = canonical_labels(dataset)
    parts = partition(labels, case, devices, seed)
    return np.stack([np.bincount(labels[part], minlength=labels[-1] + 1) for part in parts])


def _distance(counts: np.ndarray) -> float:
    share = counts / counts.sum(axis=1, keepdims=True)
    everyone = counts.sum(axis=0) / counts.sum()
    return float(np.abs(share - everyone).sum(axis=1).mean() / 2)
