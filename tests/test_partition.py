"""The three cases: what every device holds, and that every image is held once."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedentropy_core import partition
from fedentropy_core.partition import CASES

CIFAR10 = np.repeat(np.arange(10), 5000)
CIFAR100_COARSE = np.repeat(np.arange(20), 2500)


def label_counts(labels, parts):
    return np.array([np.bincount(labels[part], minlength=labels.max() + 1) for part in parts])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("labels", [CIFAR10, CIFAR100_COARSE], ids=["10 labels", "20 labels"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_image_exactly_once(labels, case, seed):
    parts = partition(labels, case, 100, seed)
    assert len(parts) == 100
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(50_000))


@pytest.mark.parametrize("labels", [CIFAR10, CIFAR100_COARSE], ids=["10 labels", "20 labels"])
def test_case_1_one_label_of_equal_size(labels):
    counts = label_counts(labels, partition(labels, 1, 100, seed=0))
    assert ((counts > 0).sum(axis=1) == 1).all()
    assert (counts.sum(axis=1) == 500).all()
    assert len(set((counts > 0).sum(axis=0))) == 1  # as many devices for every label


@pytest.mark.parametrize("labels", [CIFAR10, CIFAR100_COARSE], ids=["10 labels", "20 labels"])
@pytest.mark.parametrize("seed", range(10))
def test_case_2_two_different_labels_half_and_half(labels, seed):
    counts = label_counts(labels, partition(labels, 2, 100, seed))
    assert ((counts > 0).sum(axis=1) == 2).all()
    assert (counts[counts > 0] == 250).all()


def test_case_2_pairs_of_labels_are_mixed():
    counts = label_counts(CIFAR10, partition(CIFAR10, 2, 100, seed=0))
    pairs = {tuple(np.flatnonzero(row)) for row in counts}
    assert len(pairs) > 30  # of 45


def test_shards_may_be_of_the_same_label():
    """Of the 199 other shards 19 have the first one's label: 9.5 of 100 devices hold a single one on average."""
    single = []
    for seed in range(20):
        counts = label_counts(CIFAR10, partition(CIFAR10, "shards", 100, seed))
        assert set(np.unique(counts)) <= {0, 250, 500}
        assert (counts.sum(axis=1) == 500).all()
        single.append(((counts > 0).sum(axis=1) == 1).sum())
    assert np.mean(single) == pytest.approx(100 * 19 / 199, abs=3)


@pytest.mark.parametrize("seed", range(10))
def test_case_3_gives_everyone_ten_images_and_uneven_sizes(seed):
    sizes = np.array([len(part) for part in partition(CIFAR10, 3, 100, seed)])
    assert sizes.min() >= 10
    assert sizes.max() > 1000


def test_case_3_follows_beta():
    """The larger beta, the closer every device's labels to the global distribution."""

    def distance(beta):
        counts = label_counts(CIFAR10, partition(CIFAR10, 3, 100, seed=0, beta=beta))
        return np.abs(counts / counts.sum(axis=1, keepdims=True) - 0.1).sum(axis=1).mean() / 2

    distances = [distance(beta) for beta in (0.1, 0.5, 5, 100)]
    assert distances == sorted(distances, reverse=True)
    assert distances[0] > 0.6 > 0.1 > distances[-1]


def test_case_3_a_full_device_gets_no_more():
    """A device holds at most its fair share before its last label, so at most that plus one label."""
    counts = label_counts(CIFAR10, partition(CIFAR10, 3, 100, seed=0))
    last = counts.shape[1] - 1 - np.argmax(counts[:, ::-1] > 0, axis=1)
    before_last = counts.sum(axis=1) - counts[np.arange(100), last]
    # The last device takes what rounding leaves of every label: at most one image each.
    assert (before_last[:-1] < 500).all()
    assert before_last[-1] < 500 + 10


@pytest.mark.parametrize("case", CASES)
def test_seed_decides(case):
    first, again, other = (partition(CIFAR10, case, 100, seed) for seed in (7, 7, 8))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@given(
    st.lists(st.integers(20, 60), min_size=2, max_size=6),
    st.sampled_from([1, 2, "shards", "iid"]),
    st.integers(6, 12),
    st.integers(0, 99),
)
def test_uneven_data_is_covered_once(class_sizes, case, devices, seed):
    labels = np.repeat(np.arange(len(class_sizes)), class_sizes)
    parts = partition(labels, case, devices, seed)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    if isinstance(case, int):
        held = (label_counts(labels, parts) > 0).sum(axis=1)
        assert (held == case).all()


@pytest.mark.parametrize(
    ("labels", "case", "devices", "beta", "message"),
    [
        (CIFAR10, 4, 100, 0.1, "case must be one of"),
        (CIFAR10, "one", 100, 0.1, "case must be one of"),
        (CIFAR10, 1, 9, 0.1, "9 devices with 1 label.* cannot cover 10 labels"),
        (CIFAR10, 2, 4, 0.1, "4 devices with 2 label.* cannot cover 10 labels"),
        (np.zeros(100, dtype=int), 2, 4, 0.1, "needs at least 2 labels"),
        (np.arange(3), "iid", 4, 0.1, "3 images cannot be spread over 4 devices"),
        (CIFAR10, "iid", 0, 0.1, "devices must be at least 1"),
        (np.arange(7), "shards", 4, 0.1, "7 images are too few for two shards on each of 4 devices"),
        (CIFAR10, 3, 100, 0.0, "beta must be positive"),
        (CIFAR10, 3, 100, -1.0, "beta must be positive"),
        (CIFAR10, 3, 100, float("nan"), "beta must be positive"),
        (CIFAR10[:500], 3, 100, 0.1, "500 images are too few for 100 devices"),
        (CIFAR10 / 2, 1, 100, 0.1, "vector of integers"),
        (np.array([0, 0, 1, 1]), 2, 4, 0.1, "label 0 has 2 images, too few for 4 devices"),
    ],
)
def test_bad_requests_are_named(labels, case, devices, beta, message):
    with pytest.raises(ValueError, match=message):
        partition(labels, case, devices, 0, beta)


def test_hopeless_dirichlet_says_what_to_change(monkeypatch):
    monkeypatch.setattr(sys.modules[partition.__module__], "MAX_DIRICHLET_DRAWS", 20)
    with pytest.raises(ValueError, match=r"use a larger beta .* or fewer devices"):
        partition(CIFAR10, 3, 100, seed=0, beta=0.001)
