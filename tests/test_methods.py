"""What the server does with uploads: aggregation, SCAFFOLD's controls, Moon's memory."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import random_dataset
from torch import nn

from fedentropy_core import RunConfig
from fedentropy_core.engines import make_engine
from fedentropy_core.federation import Federation
from fedentropy_core.methods import Moon, RoundOutcome, Scaffold, ScaffoldAuthors, aggregate, move
from fedentropy_core.model import build
from fedentropy_core.work import Cohort


def cohort(weights, steps):
    weights = np.asarray(weights, dtype=np.float32)
    return Cohort(weights, np.zeros((len(weights), 2), np.float32), np.array(steps), np.zeros(len(weights)))


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


def test_scaffold_as_the_authors_coded_it_by_hand():
    """N = 4. From w_g = 1 to 0: c_2 = 0 − 0 + (1 − 0)/20 = 0.05, whatever K and lr are; c = 0.05/4 = 0.0125."""
    method = ScaffoldAuthors(4, 1)
    weights = np.array([1.0], dtype=np.float32)
    method.update(RoundOutcome(weights, (2,), (0,), cohort([[0.0]], [4]), 0.5))
    assert method.state["device_controls"][:, 0] == pytest.approx([0, 0, 0.05, 0])
    assert method.state["control"] == pytest.approx([0.0125])
    # Second round: c_2 ← 0.05 − 0.0125 + (1 − 0.5)/20 = 0.0625; Δc_2 = 0.0125, so c ← 0.0125 + 0.0125/4 = 0.015625.
    method.update(RoundOutcome(weights, (2,), (0,), cohort([[0.5]], [9]), 0.1))
    assert method.state["device_controls"][2, 0] == pytest.approx(0.0625)
    assert method.state["control"][0] == pytest.approx(0.015625)


def test_a_global_step_by_hand():
    """w_g = 2, mean 6: a step of 0.5 goes half of the way, 2 goes twice as far, 1 is the mean itself."""
    start, mean = np.array([2.0], np.float32), np.array([6.0], np.float32)
    assert [move(start, mean, step)[0] for step in (0.5, 1.0, 2.0)] == [4, 6, 10]
    assert move(start, mean, 1.0) is mean
    assert move(start, mean, 0.5).dtype == np.float32


def test_a_global_step_in_a_federation(dataset):
    """One round with half a step ends half-way between the start and where a whole step ends."""
    ends = []
    for step in (1.0, 0.5):
        federation = Federation(
            RunConfig(case=2, global_step=step, **SMALL), dataset, make_engine("reference", dataset)
        )
        start = federation.weights
        federation.play_round()
        ends.append(federation.weights.astype(np.float64) - start)
    assert np.abs(ends[1] - ends[0] / 2).max() < 1e-7
    assert np.abs(ends[0]).max() > 1e-3


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_every_round_goes_a_global_step_towards_the_mean(method, dataset):
    """w_g + η·(mean − w_g) from what the devices of that round trained, weighted by their images."""
    engine = make_engine("reference", dataset)
    config = RunConfig(**SMALL | {"devices": 8, "fraction": 0.5}, case=3, beta=1.0, method=method, global_step=0.25)
    federation, whole = (Federation(c, dataset, engine) for c in (config, replace(config, global_step=1.0)))
    for _ in range(2):
        start = federation.weights.astype(np.float64)
        cohort = engine.train(federation.begin_round())
        federation.end_round(cohort)
        sizes = [len(federation.parts[device]) for device in federation.chosen]
        mean = np.average(cohort.weights.astype(np.float64), axis=0, weights=sizes)
        assert np.abs(federation.weights - (start + 0.25 * (mean - start))).max() < 1e-7
        assert len(set(sizes)) > 1
        whole.play_round()
    assert np.abs(federation.weights - whole.weights).max() > 1e-4


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


@pytest.mark.parametrize("method", ["scaffold", "scaffold-authors"])
def test_scaffold_is_its_algorithm(method):
    """Karimireddy et al., Algorithm 1, option II, η_g = 1, in plain PyTorch and double precision; only who is drawn and
    the order of images come from us. Four of ten devices a round: c_i and c matter. Equal sizes: means are plain.
    As the authors coded it: the correction is inside the momentum, and 20 stands in place of K·lr."""
    config = RunConfig(method=method, case=2, augment="none", **SMALL | {"devices": 10, "fraction": 0.4, "epochs": 1})
    dataset = replace(random_dataset(train=1000), train_labels=np.arange(1000) % 10)
    federation = Federation(config, dataset, make_engine("reference", dataset))
    x = start = torch.tensor(federation.weights, dtype=torch.float64)
    c, c_i = torch.zeros_like(x), torch.zeros(10, len(x), dtype=torch.float64)
    for _ in range(3):
        work = federation.begin_round()
        ys, changes = [], torch.zeros_like(c_i)
        for i, device in zip(federation.chosen, work.devices, strict=True):
            y, steps = local_sgd(dataset, device, x, c - c_i[i], inside=method == "scaffold-authors")
            changes[i] = -c + (x - y) / (20 if method == "scaffold-authors" else steps * config.lr)
            ys.append(y)
        x, c, c_i = torch.stack(ys).mean(dim=0), c + changes.mean(dim=0), c_i + changes
        federation.end_round(federation.engine.train(work))
        moved = (x - start).abs().max()
        assert np.abs(federation.weights - x.numpy()).max() < 0.01 * moved


def local_sgd(dataset, device, x, correction, inside):
    """y ← y − η(momentum(g) + correction), or y − η·momentum(g + correction), in batches of 50; y and the steps."""
    net, steps, v = build(x.numpy(), len(dataset.classes)), 0, torch.zeros_like(x)
    for order in device.order:
        for batch in torch.tensor(device.images[order]).split(50):
            mean, std = (torch.tensor(values)[:, None, None] for values in (dataset.mean, dataset.std))
            images = (torch.tensor(dataset.train_images[batch]) / 255 - mean) / std
            loss = nn.functional.cross_entropy(net(images.double()), torch.tensor(dataset.train_labels[batch]))
            g = nn.utils.parameters_to_vector(torch.autograd.grad(loss, list(net.parameters())))
            v = 0.5 * v + g + (correction if inside else 0)
            y = nn.utils.parameters_to_vector(net.parameters()).detach()
            nn.utils.vector_to_parameters(y - 0.01 * (v if inside else v + correction), net.parameters())
            steps += 1
    return nn.utils.parameters_to_vector(net.parameters()).detach(), steps
