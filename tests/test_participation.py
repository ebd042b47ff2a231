"""Who is kept, by size, from a record in which it is known."""

import numpy as np
import pytest
from conftest import write_record

from fedentropy_core.paper.participation import QUARTERS, kept_by_size, participation_table, participation_text
from fedentropy_core.paper.study import shown_runs
from fedentropy_core.report.partitions import label_counts


def test_shares_and_images(tmp_path):
    """Device 1 of 100 is kept in every round: one in 25 of its quarter, and its images are all there are."""
    write_record(tmp_path, [0.3] * 1000, dataset="cifar10", case=3)
    (run,) = shown_runs("paper", tmp_path)["record"]
    images = label_counts(run.config).sum(axis=1)
    found = kept_by_size(run)
    assert found["images a round"] == pytest.approx(images[1])
    quarter = QUARTERS[np.sum(images < images[1]) // 25]
    assert found[quarter] == pytest.approx(1 / 25)
    assert sum(found[name] for name in QUARTERS) == pytest.approx(1 / 25)


def test_both_methods_of_the_same_seeds(tmp_path):
    for seed in (0, 1):
        write_record(tmp_path, [0.3] * 1000, dataset="cifar10", case=3, seed=seed)
    write_record(tmp_path, [0.3] * 1000, dataset="cifar10", case=3, entropy=True)
    table = participation_table(shown_runs("paper", tmp_path), ["cifar10", "cifar100"])
    assert table["variant"].tolist() == ["fedavg", "fedavg+entropy"]
    assert table["seeds"].tolist() == [1, 1]
    shown = participation_text(table).table
    assert shown["data"].tolist() == ["CIFAR-10"] * 2
    assert sorted(shown.iloc[0][list(QUARTERS)]) == ["0.0%", "0.0%", "0.0%", "4.0%"]


def test_no_runs_no_rows(tmp_path):
    assert participation_text(participation_table(shown_runs("paper", tmp_path), ["cifar10"])).table.empty
