"""The reference engine against a loop written by hand: the paper's network, torch.optim.SGD and autograd."""

import numpy as np
import pytest
import torch
from conftest import random_dataset, random_device
from torch import nn

from fedentropy_core.engines import make_engine
from fedentropy_core.engines.reference import ReferenceEngine
from fedentropy_core.model import build, flatten, initial_weights, layers, parameter_count
from fedentropy_core.work import LocalRule, Work

EPOCHS, BATCH, LR, MOMENTUM = 2, 7, 0.05, 0.5


def paper_network(weights, classes):
    """Table 5 as the paper has it, pooling after ReLU; layer 9 ends Moon's features."""
    net = nn.Sequential(
        *(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes)),
    ).double()
    nn.utils.vector_to_parameters(torch.tensor(weights, dtype=torch.float64), net.parameters())
    return net


def inputs(dataset, device, epoch, start):
    """A batch by definition: the chosen images, mirrored where the flag says so, scaled and normalised."""
    place = slice(start, start + BATCH)
    picked = device.images[device.order[epoch, place]]
    pixels = [
        image[:, :, ::-1] if flip else image
        for image, flip in zip(dataset.train_images[picked], device.mirror[epoch, place], strict=True)
    ]
    mean, std = (np.array(values)[:, None, None] for values in (dataset.mean, dataset.std))
    x = ((np.array(pixels) / 255 - mean) / std).astype(np.float32)
    return torch.tensor(x, dtype=torch.float64), torch.tensor(dataset.train_labels[picked])


def train_by_hand(dataset, weights, device, *, prox_mu=0.0, moon_mu=0.0, tau=0.5, correction_in_momentum=False):
    """The definitions, with the momentum written out: v ← 0.5·v + g, w ← w − lr·v."""
    classes = len(dataset.classes)
    net, global_net = paper_network(weights, classes), paper_network(weights, classes)
    previous_net = None if device.previous is None else paper_network(device.previous, classes)
    correction = None if device.correction is None else paper_network(device.correction, classes)
    velocity = [torch.zeros_like(p) for p in net.parameters()]
    nothing = [torch.zeros_like(p) for p in net.parameters()]
    corrections = nothing if correction is None else [c.detach() for c in correction.parameters()]
    for epoch in range(EPOCHS):
        for start in range(0, len(device.images), BATCH):
            x, y = inputs(dataset, device, epoch, start)
            z = net[:11](x)
            loss = nn.functional.cross_entropy(net[11](z), y)
            if moon_mu and previous_net is not None:
                with torch.no_grad():
                    z_global, z_previous = global_net[:11](x), previous_net[:11](x)
                near = torch.exp(torch.cosine_similarity(z, z_global) / tau)
                far = torch.exp(torch.cosine_similarity(z, z_previous) / tau)
                loss = loss + moon_mu * -torch.log(near / (near + far)).mean()
            gradients = torch.autograd.grad(loss, list(net.parameters()))
            with torch.no_grad():
                for p, p_g, v, g, c in zip(
                    net.parameters(), global_net.parameters(), velocity, gradients, corrections, strict=True
                ):
                    g = g + prox_mu * (p - p_g)
                    if correction_in_momentum:
                        v.copy_(MOMENTUM * v + (g + c))
                        p -= LR * v
                    else:
                        v.copy_(MOMENTUM * v + g)
                        p -= LR * v + LR * c
    x = dataset.train_images[device.images] / 255
    mean, std = (np.array(values)[:, None, None] for values in (dataset.mean, dataset.std))
    x = torch.tensor(((x - mean) / std).astype(np.float32), dtype=torch.float64)
    soft_label = torch.softmax(net(x), dim=1).mean(dim=0)
    return nn.utils.parameters_to_vector(net.parameters()).detach().numpy(), soft_label.detach().numpy()


@pytest.fixture(scope="module", params=[10, 20], ids=["10 classes", "20 classes"])
def setting(request):
    dataset = random_dataset(classes=request.param)
    rng = np.random.default_rng(5)
    weights, other = (initial_weights(request.param, rng) for _ in range(2))
    return dataset, weights, other


def engine_result(dataset, weights, device, **rule):
    engine = ReferenceEngine(dataset, dtype=torch.float64)
    cohort = engine.train(Work(weights, LocalRule(LR, MOMENTUM, BATCH, **rule), (device,)))
    return cohort.weights[0], cohort.soft_labels[0], cohort.steps[0]


@pytest.mark.parametrize(
    ("rule", "term"),
    [
        ({}, None),
        ({"prox_mu": 0.3}, None),
        ({}, "correction"),
        ({"correction_in_momentum": True}, "correction"),
        ({"moon_mu": 2.0}, "previous"),
        ({"moon_mu": 2.0}, None),
    ],
    ids=["FedAvg", "FedProx", "SCAFFOLD", "SCAFFOLD, authors' form", "Moon", "Moon's first participation"],
)
def test_local_training_is_the_method(setting, rule, term):
    dataset, weights, other = setting
    terms = {} if term is None else {term: other * (0.01 if term == "correction" else 1)}
    device = random_device(np.arange(40, 80), EPOCHS, **terms)  # 40 images in batches of 7: the last has 5
    expected, soft_label = train_by_hand(dataset, weights, device, **rule)
    trained, soft, steps = engine_result(dataset, weights, device, **rule)
    assert np.abs(trained - expected).max() < 1e-9
    assert np.abs(soft - soft_label).max() < 1e-9
    assert steps == EPOCHS * 6


def test_terms_make_a_difference(setting):
    """Each method's term moves the weights by far more than the tolerance above."""
    dataset, weights, other = setting
    images = np.arange(40, 80)
    plain, *_ = engine_result(dataset, weights, random_device(images, EPOCHS))
    prox, *_ = engine_result(dataset, weights, random_device(images, EPOCHS), prox_mu=0.3)
    corrected = random_device(images, EPOCHS, correction=other * 0.01)
    scaffold, *_ = engine_result(dataset, weights, corrected)
    authors, *_ = engine_result(dataset, weights, corrected, correction_in_momentum=True)
    moon, *_ = engine_result(dataset, weights, random_device(images, EPOCHS, previous=other), moon_mu=2.0)
    first_moon, *_ = engine_result(dataset, weights, random_device(images, EPOCHS), moon_mu=2.0)
    for changed in (prox, scaffold, authors, moon):
        assert np.abs(changed - plain).max() > 1e-5
    assert np.abs(authors - scaffold).max() > 1e-5
    assert np.array_equal(first_moon, plain)


def test_threads_do_not_change_a_bit(dataset):
    weights = initial_weights(10, np.random.default_rng(0))
    parts = np.split(np.arange(300), [10, 47, 150, 290])
    devices = tuple(random_device(part, EPOCHS, seed=k) for k, part in enumerate(parts))
    work = Work(weights, LocalRule(LR, MOMENTUM, 50), devices)
    engines = [ReferenceEngine(dataset, threads) for threads in (1, 2, 3)]
    cohorts = [engine.train(work) for engine in engines]
    for cohort in cohorts[1:]:
        assert np.array_equal(cohort.weights, cohorts[0].weights)
        assert np.array_equal(cohort.soft_labels, cohorts[0].soft_labels)
    scored = [engine.evaluate(weights, dataset.train_images, dataset.train_labels) for engine in engines]
    scores = {(tuple(right), loss) for right, loss in scored}
    assert len(scores) == 1


def test_a_device_does_not_depend_on_its_company(dataset):
    weights = initial_weights(10, np.random.default_rng(0))
    one, other = random_device(np.arange(50), 1, seed=1), random_device(np.arange(50, 90), 1, seed=2)
    rule, engine = LocalRule(LR, MOMENTUM, BATCH), ReferenceEngine(dataset)
    together = engine.train(Work(weights, rule, (other, one)))
    assert np.array_equal(together.weights[1], engine.train(Work(weights, rule, (one,))).weights[0])


def test_evaluation_is_accuracy_and_cross_entropy(dataset):
    weights = initial_weights(10, np.random.default_rng(0))
    net = paper_network(weights, 10)
    mean, std = (np.array(values)[:, None, None] for values in (dataset.mean, dataset.std))
    x = torch.tensor(((dataset.test_images / 255 - mean) / std).astype(np.float32), dtype=torch.float64)
    logits, labels = net(x).detach(), torch.tensor(dataset.test_labels)
    right, loss = ReferenceEngine(dataset, dtype=torch.float64).evaluate(
        weights, dataset.test_images, dataset.test_labels
    )
    answers = logits.argmax(1)
    assert right.tolist() == [int(((answers == label) & (labels == label)).sum()) for label in range(10)]
    assert loss == pytest.approx(nn.functional.cross_entropy(logits, labels).item(), abs=1e-12)


def test_parameter_counts():
    assert parameter_count(10) == 62_006
    assert [layer.name for layer in layers(20)][-1] == "fc3.bias"
    assert parameter_count(20) == 62_006 + 10 * 85


def test_flat_vector_round_trip():
    weights = initial_weights(10, np.random.default_rng(0))
    assert weights.dtype == np.float32
    assert np.array_equal(flatten(build(weights, 10)), weights)


def test_initial_weights_fill_the_range_of_each_layer():
    weights, start = initial_weights(10, np.random.default_rng(0)), 0
    for layer in layers(10):
        values, bound = weights[start : start + layer.size], 1 / np.sqrt(layer.fan_in)
        assert np.abs(values).max() <= bound * (1 + 1e-6)
        if layer.size > 400:
            assert np.abs(values).max() > 0.98 * bound
            assert abs(values.mean()) < 0.1 * bound
        start += layer.size
    assert start == len(weights)


@pytest.mark.parametrize(("device", "message"), [("gpu", "knows no device 'gpu'"), ("cuda", "finds no cuda GPU")])
def test_a_device_that_is_not_there_is_named(dataset, device, message, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for engine in ("auto", "reference", "batched"):
        with pytest.raises(ValueError, match=message):
            make_engine(engine, dataset, device=device)
