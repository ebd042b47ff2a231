"""How far devices are from each other: the labels of a partition, counted and measured."""

from collections.abc import Sequence

import numpy as np

from fedentropy_core.config import RunConfig
from fedentropy_core.data.catalogue import SPECS
from fedentropy_core.data.load import load_dataset
from fedentropy_core.partition import partition


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
