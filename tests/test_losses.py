"""A cohort's losses are those of plain PyTorch on the device's own images, before and after training."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import random_device
from torch.nn import functional as F

from fedentropy_core.engines.batched import BatchedEngine
from fedentropy_core.engines.native import NativeEngine
from fedentropy_core.engines.reference import ReferenceEngine
from fedentropy_core.model import build, initial_weights
from fedentropy_core.work import LocalRule, Work

ENGINES = {
    "reference": lambda dataset: ReferenceEngine(dataset),
    "native": lambda dataset: NativeEngine(dataset),
    "batched": lambda dataset: BatchedEngine(dataset, "cpu"),
}


def mean_loss(weights, dataset, images):
    """In double precision, from the images' bytes."""
    model = build(weights, 10).double()
    mean, std = (torch.tensor(values, dtype=torch.float64).view(3, 1, 1) for values in (dataset.mean, dataset.std))
    x = (torch.tensor(dataset.train_images[images], dtype=torch.float64) / 255 - mean) / std
    return float(F.cross_entropy(model(x), torch.tensor(dataset.train_labels[images])).detach())


@pytest.mark.parametrize("name", ENGINES)
def test_losses_are_those_of_the_devices_images(name, dataset):
    weights = initial_weights(10, np.random.default_rng(0))
    parts = [np.arange(7), np.arange(20, 121), np.array([200])]
    devices = tuple(random_device(part, epochs=2, seed=k) for k, part in enumerate(parts))
    work = Work(weights, LocalRule(0.05, 0.5, 10), devices, first_losses=True)
    cohort = ENGINES[name](dataset).train(work)
    expected = [mean_loss(trained, dataset, part) for trained, part in zip(cohort.weights, parts, strict=True)]
    np.testing.assert_allclose(cohort.losses, expected, atol=2e-5)
    np.testing.assert_allclose(cohort.first_losses, [mean_loss(weights, dataset, part) for part in parts], atol=2e-5)
    assert (cohort.losses < cohort.first_losses).all()
    unasked = ENGINES[name](dataset).train(replace(work, first_losses=False))
    assert unasked.first_losses is None
    assert unasked.weights.tobytes() == cohort.weights.tobytes()
    assert unasked.losses.tobytes() == cohort.losses.tobytes()


def test_a_stack_asks_for_some(dataset):
    weights = initial_weights(10, np.random.default_rng(0))
    works = [
        Work(weights, LocalRule(0.05, 0.5, 10), (random_device(np.arange(20), epochs=1),), first_losses=asked)
        for asked in (True, False)
    ]
    one, other = BatchedEngine(dataset, "cpu").train_many(works)
    assert one.first_losses is not None
    assert other.first_losses is None
