"""What the server does with uploads: aggregation, SCAFFOLD's controls, Moon's memory."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import random_dataset
from torch import nn

from fedentropy_core import RunConfig
from fedentropy_core.engines import make_engine
from fedentropy_core.engines.base import Cohort
from fedentropy_core.federation import Federation
from fedentropy_core.methods import Moon, RoundOutcome, Scaffold, aggregate
from fedentropy_core.model import build


def cohort(weights, steps):
    weights = np.asarray(weights, dtype=np.float32)
    return Cohort(weights, np.zeros((len(weights), 2), dtype=np.float32), np.array(steps))


def test_aggregation_weighs_by_size():
    models = np.array([[1, 0], [0, 4]], dtype=np.float32)
    assert aggregate(models, np.array([3, 1])).tolist() == [0.75, 1.0]
    assert aggregate(models, np.array([3, 1])).dtype == np.float32


def test_scaffold_controls_by_hand():
    """N = 4, lr = 0.5. Device 2: K = 4 steps from w_g = 1 to 0: c_2 = 0 − 0 + (1 − 0)/(4·0.5) = 0.5; c = 0.5/4."""
    method = Scaffold(4, 1)
    weights = np.array([1.0], dtype=np.float32)
    method.update(RoundOutcome(weights, (2,), (0,), cohort([[0.0]], [4]), 0.5))
    assert method.state["device_controls"][:, 0].tolist() == [0, 0, 0.5, 0]
    assert method.state["control"].tolist() == [0.125]
    assert method.terms(2)["correction"].tolist() == [0.125 - 0.5]
    assert method.terms(0)["correction"].tolist() == [0.125]
    # Second round: c_2 ← 0.5 − 0.125 + (1 − 0.5)/(4·0.5) = 0.625, and c = 0.625/4.
    method.update(RoundOutcome(weights, (2,), (0,), cohort([[0.5]], [4]), 0.5))
    assert method.state["device_controls"][2, 0] == pytest.approx(0.625)
    assert method.state["control"][0] == pytest.approx(0.625 / 4)


def test_scaffold_uses_the_old_control_for_every_device_of_a_round():
    method = Scaffold(2, 1)
    method.state["control"][:] = 1.0
    weights = np.array([0.0], dtype=np.float32)
    method.update(RoundOutcome(weights, (0, 1), (0, 1), cohort([[0.0], [0.0]], [1, 1]), 1.0))
    assert method.state["device_controls"][:, 0].tolist() == [-1, -1]


def test_scaffold_a_removed_device_keeps_its_control():
    method = Scaffold(3, 1)
    weights = np.array([1.0], dtype=np.float32)
    method.update(RoundOutcome(weights, (0, 1), (1,), cohort([[9.0], [0.0]], [1, 2]), 0.5))
    assert method.state["device_controls"][:, 0].tolist() == [0, 1, 0]


def test_moon_remembers_kept_and_removed_devices():
    method = Moon(3, 2)
    assert method.terms(0)["previous"] is None
    method.update(RoundOutcome(np.zeros(2, np.float32), (2, 0), (0,), cohort([[1, 2], [3, 4]], [1, 1]), 0.1))
    assert method.terms(2)["previous"].tolist() == [1, 2]
    assert method.terms(0)["previous"].tolist() == [3, 4]
    assert method.terms(1)["previous"] is None


SMALL = {"dataset": "synthetic", "devices": 20, "fraction": 0.2, "rounds": 4, "epochs": 2}


@pytest.mark.parametrize("entropy", [False, True])
def test_scaffold_in_a_federation(entropy, dataset):
    """c is the mean of all c_k after every round, and c_k is stored back, of kept devices only."""
    config = RunConfig(method="scaffold", entropy=entropy, case=2, **SMALL)
    federation = Federation(config, dataset, make_engine("reference", dataset))
    state, touched = federation.method.state, set()
    assert not state["control"].any()
    assert not state["device_controls"].any()
    for _ in range(4):
        before = state["device_controls"].copy()
        row = federation.play_round()
        touched |= set(row.kept)
        after = state["device_controls"]
        assert set(np.flatnonzero(after.any(axis=1))) == touched
        unchanged = sorted(set(range(20)) - set(row.kept))
        assert np.array_equal(after[unchanged], before[unchanged])
        mean = after.astype(np.float64).mean(axis=0)
        assert np.abs(state["control"] - mean).max() < 1e-6 * max(1, np.abs(after).max())


def test_scaffold_counts_the_steps_of_all_epochs(dataset):
    """One device a round: its local model is the new global one, so c_k⁺ can be worked out from outside."""
    config = RunConfig(method="scaffold", case=2, **SMALL | {"fraction": 0.05})
    federation = Federation(config, dataset, make_engine("reference", dataset))
    start = federation.weights.copy()
    (device,) = federation.play_round().chosen
    steps = 2 * int(np.ceil(len(federation.parts[device]) / 50))
    expected = (start - federation.weights) / (steps * 0.01)
    assert np.abs(federation.method.state["device_controls"][device] - expected).max() < 1e-4


def test_scaffold_is_its_papers_algorithm():
    """Karimireddy et al., Algorithm 1, option II, η_g = 1, in plain PyTorch and double precision; only who is drawn and
    the order of images come from us. Four of ten devices a round: c_i and c matter. Equal sizes: means are plain."""
    config = RunConfig(
        method="scaffold", case=2, augment="none", **SMALL | {"devices": 10, "fraction": 0.4, "epochs": 1}
    )
    dataset = replace(random_dataset(train=1000), train_labels=np.arange(1000) % 10)
    federation = Federation(config, dataset, make_engine("reference", dataset))
    x = start = torch.tensor(federation.weights, dtype=torch.float64)
    c, c_i = torch.zeros_like(x), torch.zeros(10, len(x), dtype=torch.float64)
    for _ in range(3):
        work = federation.begin_round()
        ys, changes = [], torch.zeros_like(c_i)
        for i, device in zip(federation.chosen, work.devices, strict=True):
            y, steps = local_sgd(dataset, device, x, c - c_i[i])
            changes[i] = -c + (x - y) / (steps * config.lr)
            ys.append(y)
        x, c, c_i = torch.stack(ys).mean(dim=0), c + changes.mean(dim=0), c_i + changes
        federation.end_round(federation.engine.train(work))
        moved = (x - start).abs().max()
        assert np.abs(federation.weights - x.numpy()).max() < 0.01 * moved


def local_sgd(dataset, device, x, correction):
    """y ← y − η(momentum(g) + correction) in batches of 50; the local model and the number of steps."""
    net, steps = build(x.numpy(), len(dataset.classes)), 0
    sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.5)
    for order in device.order:
        for batch in torch.tensor(device.images[order]).split(50):
            mean, std = (torch.tensor(values)[:, None, None] for values in (dataset.mean, dataset.std))
            images = (torch.tensor(dataset.train_images[batch]) / 255 - mean) / std
            sgd.zero_grad()
            nn.functional.cross_entropy(net(images.double()), torch.tensor(dataset.train_labels[batch])).backward()
            sgd.step()
            vector = nn.utils.parameters_to_vector(net.parameters()).detach() - 0.01 * correction
            nn.utils.vector_to_parameters(vector, net.parameters())
            steps += 1
    return nn.utils.parameters_to_vector(net.parameters()).detach(), steps
