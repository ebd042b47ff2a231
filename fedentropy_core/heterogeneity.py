"""How unequal the devices' labels are: Figure 5, and a measure for it."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedentropy_core.config import RunConfig
from fedentropy_core.datasets import load_dataset
from fedentropy_core.partition import partition
from fedentropy_core.sources import SPECS
from fedentropy_core.study import CASES


def canonical_labels(dataset: str) -> np.ndarray:
    """The training labels of a data set; in canonical order they follow from its class counts, so no data is needed."""
    if dataset == "synthetic":
        return load_dataset("synthetic").train_labels
    spec = SPECS[dataset]
    return np.repeat(np.arange(len(spec.classes)), spec.train // len(spec.classes))


def label_counts(config: RunConfig) -> np.ndarray:
    """[devices, classes]: how many images of each label every device of a run has."""
    labels = canonical_labels(config.dataset)
    parts = partition(labels, config.case, config.devices, config.seed, config.beta)
    return count_labels(labels, parts, int(labels.max()) + 1)


def count_labels(labels: np.ndarray, parts: Sequence[np.ndarray], classes: int) -> np.ndarray:
    return np.stack([np.bincount(labels[part], minlength=classes) for part in parts])


def distance(counts: np.ndarray) -> float:
    """Mean total-variation distance ½·Σ|p_k − p| between a device's labels and all labels, over devices."""
    share = counts / counts.sum(axis=1, keepdims=True)
    everyone = counts.sum(axis=0) / counts.sum()
    return float(np.abs(share - everyone).sum(axis=1).mean() / 2)


def counts_by_case(seed: int) -> dict[tuple[str, int], np.ndarray]:
    """The label counts of each data set and case."""
    settings = [(dataset, case) for dataset in SPECS for case in CASES]
    return {place: label_counts(RunConfig(dataset=place[0], case=place[1], seed=seed)) for place in settings}


def index_table(seeds: Sequence[int]) -> pd.DataFrame:
    """The distance in each data set and case, mean over seeds."""
    found = [{place: distance(counts) for place, counts in counts_by_case(seed).items()} for seed in seeds]
    rows = [(*place, np.mean([of_seed[place] for of_seed in found])) for place in found[0]]
    return pd.DataFrame(rows, columns=["dataset", "case", "distance"])
