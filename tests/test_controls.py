"""SCAFFOLD's control variates: their ages in records, and their growth against a hand-worked mean of local steps."""

import numpy as np
import pytest
import torch
from conftest import random_dataset, write_record
from torch.nn import functional as F

from fedentropy_core.config import RunConfig
from fedentropy_core.engines import make_engine
from fedentropy_core.federation import Federation
from fedentropy_core.model import build
from fedentropy_core.paper.controls import ages_shown, ages_table, control_ages, control_norms, growth_table
from fedentropy_core.paper.study import study_runs
from fedentropy_core.runs.record import load_record


def test_the_age_of_control_variates(tmp_path):
    """Device 1 is kept in every round, the others never."""
    record = load_record(write_record(tmp_path, [0.1] * 3, devices=4, fraction=0.5).csv)
    assert control_ages(record).tolist() == [[0, 0, 0, 0], [1, 0, 1, 1], [2, 0, 2, 2]]


def test_the_table_of_ages_has_what_is_recorded(tmp_path):
    """Of 100 devices one is kept in every round; ages are 0 to 999 equally often."""
    run = {"dataset": "cifar10", "method": "scaffold", "case": 3, "entropy": True}
    run |= {"augment": "mirror", "partition_seed": None}
    write_record(tmp_path, [0.3] * 1000, **run)
    write_record(tmp_path, [0.2] * 1000, **run, seed=2)
    write_record(tmp_path, [0.1] * 11, **run | {"case": 1}, rounds=1000)
    write_record(tmp_path, [0.4] * 1000, **run, selection="uniform", study="diagnosis")
    table = ages_table(*(study_runs(name, tmp_path) for name in ("mirrored", "diagnosis")))
    assert table.to_numpy().tolist() == [
        [1, "scaffold+entropy", 0, 5, 9, 10.0, True],
        [3, "scaffold+entropy", 0, 494, 898, 30.0, False],
        [3, "scaffold+entropy", 2, 494, 898, 20.0, False],
        [3, "scaffold+entropy-no-pools", 0, 494, 898, 40.0, False],
    ]
    assert ages_shown(table).table.to_numpy().tolist() == [
        [1, "SCAFFOLD + FedEntropy", 0, 5, 9, "10.00 (diverged)"],
        [3, "SCAFFOLD + FedEntropy", 0, 494, 898, "30.00"],
        [3, "SCAFFOLD + FedEntropy", 2, 494, 898, "20.00"],
        [3, "SCAFFOLD + FedEntropy without pools", 0, 494, 898, "40.00"],
    ]


def test_renewed_with_short_steps_it_is_the_mean_local_step():
    """Local steps too short to go anywhere: the gradient stays g, and v is g, 1.5·g, 1.75·g with momentum 0.5."""
    dataset = random_dataset()
    config = RunConfig(dataset="synthetic", devices=10, batch_size=1000, augment="none", lr=1e-3)
    federation = Federation(config, dataset, make_engine("reference", dataset))
    norms = control_norms(federation, devices=[0, 7], epochs=3, renewals=4)
    for device, column in zip([0, 7], norms.T, strict=True):
        expected = gradient_norm(federation, device) * (1 + 1.5 + 1.75) / 3
        assert column == pytest.approx(np.full(4, expected), rel=0.02)


def gradient_norm(federation, device):
    """Of the device's mean cross-entropy, by autograd."""
    images, data = federation.parts[device], federation.dataset
    pixels = np.stack([data.pixel_values[channel][data.train_images[images, channel]] for channel in range(3)], axis=1)
    model = build(federation.weights, len(data.classes))
    F.cross_entropy(model(torch.tensor(pixels)), torch.tensor(data.train_labels[images])).backward()
    return float(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).norm())


def test_the_table_of_growth_has_a_row_a_case_and_number_of_epochs():
    config = RunConfig(dataset="synthetic", devices=50, fraction=0.04, batch_size=10, rounds=1)
    table = growth_table(config, cases=(1, "iid"), epochs=(2, 1), renewals=2)
    assert table[["case", "local epochs"]].to_numpy().tolist() == [[1, 2], [1, 1], ["iid", 2], ["iid", 1]]
    assert (table[[1, 2]] > 0).all(axis=None)
