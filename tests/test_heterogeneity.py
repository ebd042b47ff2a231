"""Figure 5's counts and the heterogeneity index, against values worked out by hand."""

import numpy as np
import pytest

from fedentropy_core import RunConfig, partition
from fedentropy_core.model import parameter_count
from fedentropy_core.paper import heterogeneity, settings


def test_counts_cover_the_data():
    counts = heterogeneity.counts_by_case(seed=0)
    assert len(counts) == 9
    assert counts["cifar10", 1].sum() == 50_000
    assert counts["cifar100", 2].shape == (100, 20)
    assert (counts["cinic10", 2].sum(axis=1) == 900).all()


def test_label_counts_need_no_data():
    config = RunConfig(dataset="cifar100", case=2, seed=3, partition_seed=None)
    counts = heterogeneity.label_counts(config)
    labels = np.repeat(np.arange(20), 2500)
    part = partition(labels, 2, 100, 3)[7]
    assert counts.shape == (100, 20)
    np.testing.assert_array_equal(counts[7], np.bincount(labels[part], minlength=20))


def test_index_of_cases_1_and_2():
    """One of C labels: 1 − 1/C, divergence ln C. Two of C labels half and half: 1 − 2/C, ln C/2."""
    measures = heterogeneity.index_table(seeds=(0,)).set_index(["dataset", "case"])
    table = measures["distance"]
    assert table["cifar10", 1] == pytest.approx(0.9)
    assert table["cifar10", 2] == pytest.approx(0.8)
    assert table["cifar100", 1] == pytest.approx(0.95)
    assert table["cifar100", 2] == pytest.approx(0.9)
    assert measures["divergence"]["cifar10", 1] == pytest.approx(np.log(10))
    assert measures["divergence"]["cifar100", 2] == pytest.approx(np.log(10))
    for dataset in ("cifar10", "cifar100", "cinic10"):
        assert table[dataset, 1] > table[dataset, 2] > table[dataset, 3]
        for name in ("distance", "divergence"):
            for case in (1, 2):
                row = measures.loc[dataset, case]
                assert row[f"{name}, by images"] == pytest.approx(row[name]), "equal sizes, equal weights"


def test_measures_weighted_by_images():
    """Devices (30, 0) and (5, 5): p = (⅞, ⅛); distances ⅛ and ⅜, weighted (30·⅛ + 10·⅜)/40 = 3/16."""
    found = heterogeneity.measures(np.array([[30, 0], [5, 5]]))
    first, second = np.log(8 / 7), 0.5 * np.log(4 / 7) + 0.5 * np.log(4)
    assert found["distance"] == pytest.approx(1 / 4)
    assert found["distance, by images"] == pytest.approx(3 / 16)
    assert found["divergence"] == pytest.approx((first + second) / 2)
    assert found["divergence, by images"] == pytest.approx((3 * first + second) / 4)


def test_concentration():
    """Label 0 is on one device of two by three quarters: 1/(9/16 + 1/16) = 1.6 devices; label 1 on both alike: 2."""
    found = heterogeneity.concentration(np.array([[30, 10], [10, 10]]))
    assert list(found.values()) == pytest.approx([0.75, 1.6])
    assert list(heterogeneity.concentration(np.eye(3)).values()) == [1, 1]


def test_draws_of_case_3_by_seed():
    table = heterogeneity.seeds_table(seeds=(0, 2)).set_index(["dataset", "seed"])
    assert list(table.index) == [(d, s) for d in ("cifar10", "cifar100", "cinic10") for s in (0, 2)]
    sizes = heterogeneity.label_counts(RunConfig(case=3, partition_seed=2)).sum(axis=1)
    assert table.loc[("cifar10", 2), ["fewest images", "most images"]].tolist() == [sizes.min(), sizes.max()]
    assert (table["fewest images"] >= 10).all()


def test_tables_4_and_5():
    data = settings.dataset_table().set_index("data")
    assert data.loc["CINIC-10"].tolist() == ["3×32×32", 10, 90_000, 90_000]
    assert data.loc["CIFAR-100", "classes"] == 20
    network = settings.network_table(10)
    assert network["parameters"].iloc[-1] == parameter_count(10) == network["parameters"].iloc[:-1].sum()
    assert network["units"].tolist()[:5] == [6, 16, 120, 84, 10]
