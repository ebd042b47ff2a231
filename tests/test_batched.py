"""The batched engine against the reference engine in double precision, and its promises about company and memory."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import random_dataset, random_device

from fedentropy_core.engines import batched
from fedentropy_core.engines.batched import BatchedEngine
from fedentropy_core.engines.reference import ReferenceEngine
from fedentropy_core.model import build, initial_weights
from fedentropy_core.work import LocalRule, Work

RULE = LocalRule(lr=0.05, momentum=0.5, batch_size=50)
SIZES = (120, 10, 37, 61)
METHODS = {
    "FedAvg": ({}, None),
    "FedProx": ({"prox_mu": 0.3}, None),
    "SCAFFOLD": ({}, "correction"),
    "SCAFFOLD, authors' form": ({"correction_in_momentum": True}, "correction"),
    "Moon": ({"moon_mu": 2.0}, "previous"),
    "Moon, first participation of all": ({"moon_mu": 2.0}, None),
}
# float64 where there is one; MPS has only float32, in which the engines part after a few steps.
DEVICES = [
    pytest.param(("cpu", torch.float64, 1e-9), id="cpu"),
    pytest.param(
        ("cuda", torch.float64, 1e-9),
        id="cuda",
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU"),
    ),
    pytest.param(
        ("mps", torch.float32, 1e-4),
        id="mps",
        marks=pytest.mark.skipif(not torch.backends.mps.is_available(), reason="no Apple GPU"),
    ),
]


@pytest.fixture(scope="module", params=DEVICES)
def place(request):
    """A torch device, the precision to test it in, and how far it may be from the reference."""
    return request.param


@pytest.fixture(scope="module")
def engine(place):
    return BatchedEngine(random_dataset(), *place[:2])


@pytest.fixture(scope="module")
def cpu_engine():
    """In the precision of real runs."""
    return BatchedEngine(random_dataset(), "cpu")


def random_weights(seed, classes=10):
    return initial_weights(classes, np.random.default_rng(seed))


def cohort_work(method="FedAvg", sizes=SIZES, batch_size=50, classes=10, epochs=1, seed=0):
    """Devices of these sizes, one after the other in the training set; the second has no control or previous model."""
    rule, term = METHODS[method]
    parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    scale = 0.01 if term == "correction" else 1
    devices = []
    for k, part in enumerate(parts):
        terms = {} if term is None or k == 1 else {term: random_weights(50 + k, classes) * np.float32(scale)}
        devices.append(random_device(part, epochs, seed=10 * seed + k, **terms))
    return Work(random_weights(seed, classes), replace(RULE, batch_size=batch_size, **rule), tuple(devices))


def assert_close(cohort, expected, tolerance):
    assert np.abs(cohort.weights - expected.weights).max() < tolerance
    assert np.abs(cohort.soft_labels - expected.soft_labels).max() < tolerance
    assert np.array_equal(cohort.steps, expected.steps)


def assert_same_bits(cohort, expected):
    assert np.array_equal(cohort.weights, expected.weights)
    assert np.array_equal(cohort.soft_labels, expected.soft_labels)
    assert np.array_equal(cohort.steps, expected.steps)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("classes", "batch_size"), [(10, 50), (20, 7)])
def test_local_training_is_that_of_the_reference(place, method, classes, batch_size):
    device, dtype, tolerance = place
    dataset = random_dataset(classes)
    work = cohort_work(method, SIZES, batch_size, classes, epochs=2)
    expected = ReferenceEngine(dataset, dtype=torch.float64).train(work)
    cohort = BatchedEngine(dataset, device, dtype).train(work)
    assert cohort.weights.dtype == (np.float64 if dtype == torch.float64 else np.float32)
    assert_close(cohort, expected, tolerance)


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("classes", "batch_size"), [(20, 50), (10, 7)])
def test_long_local_training_is_that_of_the_reference(place, method, classes, batch_size):
    device, dtype, tolerance = place
    dataset = random_dataset(classes, train=1800)
    work = cohort_work(method, (500, 10, 37, 1234), batch_size, classes)
    expected = ReferenceEngine(dataset, dtype=torch.float64).train(work)
    assert_close(BatchedEngine(dataset, device, dtype).train(work), expected, tolerance * 10)


@pytest.mark.slow
def test_terms_make_a_difference(engine):
    """Each method's term moves the weights by far more than the tolerance above, and only where a device has it."""
    trained = {method: engine.train(cohort_work(method, batch_size=7)).weights for method in METHODS}
    plain = trained["FedAvg"]
    for method in ("FedProx", "SCAFFOLD", "Moon"):
        moved = np.abs(trained[method] - plain).max(axis=1)
        assert (moved[[0, 2, 3]] > 1e-5).all(), method
        assert (moved[1] > 1e-5) == (method == "FedProx"), method
    assert np.array_equal(trained["Moon, first participation of all"], plain)


def test_devices_may_differ_in_epochs(engine, place):
    """The order of the stack by steps is then not the order by images."""
    images = np.split(np.arange(230), [130])
    devices = tuple(random_device(part, epochs, seed=epochs) for part, epochs in zip(images, (1, 4), strict=True))
    work = Work(random_weights(0), RULE, devices)
    expected = ReferenceEngine(random_dataset(), dtype=torch.float64).train(work)
    assert_close(engine.train(work), expected, place[2])


def test_mirroring_is_training_on_mirror_images(place):
    dataset = random_dataset()
    flipped = replace(dataset, train_images=np.ascontiguousarray(dataset.train_images[..., ::-1]))
    device = random_device(np.arange(80), 1)
    everything, nothing = (replace(device, mirror=np.full((1, 80), flag)) for flag in (True, False))
    cohorts = [
        BatchedEngine(data, *place[:2]).train(Work(random_weights(0), RULE, (visit,)))
        for data, visit in ((dataset, everything), (flipped, nothing))
    ]
    assert np.array_equal(cohorts[0].weights, cohorts[1].weights)
    assert not np.array_equal(cohorts[0].soft_labels, cohorts[1].soft_labels)


@pytest.mark.parametrize("batch", [batched.SOFT_LABEL_BATCH, 16])
def test_soft_labels_are_of_the_own_images_unmirrored(engine, place, batch, monkeypatch):
    monkeypatch.setattr(batched, "SOFT_LABEL_BATCH", batch)
    dataset, work = random_dataset(), cohort_work()
    cohort = engine.train(work)
    mean, std = (np.array(values)[:, None, None] for values in (dataset.mean, dataset.std))
    for device, weights, soft_label in zip(work.devices, cohort.weights, cohort.soft_labels, strict=True):
        x = ((dataset.train_images[device.images] / 255 - mean) / std).astype(np.float32)
        model = build(weights.astype(np.float64), 10)
        expected = model(torch.tensor(x, dtype=torch.float64)).softmax(1).mean(0).detach().numpy()
        assert np.abs(soft_label - expected).max() < place[2]


@pytest.mark.parametrize("method", ["SCAFFOLD", "Moon"])
def test_a_device_has_the_same_bits_in_any_company(cpu_engine, method):
    work = cohort_work(method, (60, 10, 37))
    together = cpu_engine.train(work)
    for k, device in enumerate(work.devices):
        alone = cpu_engine.train(replace(work, devices=(device,)))
        assert np.array_equal(alone.weights[0], together.weights[k])
        assert np.array_equal(alone.soft_labels[0], together.soft_labels[k])
    back_to_front = cpu_engine.train(replace(work, devices=work.devices[::-1]))
    assert np.array_equal(back_to_front.weights[::-1], together.weights)


def test_finished_devices_do_not_change_the_others(engine, place):
    """Nor do the others change them: a finished device's momentum must not carry it on."""
    long, short = (random_device(np.arange(200)[part], 2) for part in (slice(0, 150), slice(150, 160)))
    weights = random_weights(0)
    both, swapped = (engine.train(Work(weights, RULE, devices)) for devices in ((long, short), (short, long)))
    for k, device in enumerate((long, short)):
        alone = engine.train(Work(weights, RULE, (device,)))
        assert np.abs(both.weights[k] - alone.weights[0]).max() < place[2]
        assert np.abs(swapped.weights[1 - k] - alone.weights[0]).max() < place[2]


@pytest.mark.parametrize("method", ["FedProx", "SCAFFOLD", "Moon"])
def test_stacked_works_are_the_separate_works(cpu_engine, method):
    works = [cohort_work(method, sizes, seed=seed) for seed, sizes in enumerate([(60, 10), (37, 80, 61), (55, 20)])]
    assert not np.array_equal(works[0].weights, works[1].weights)
    for cohort, work in zip(cpu_engine.train_many(works), works, strict=True):
        assert_same_bits(cohort, cpu_engine.train(work))


def test_stacked_works_agree_with_the_reference(engine, place):
    works = [cohort_work("FedProx", sizes, seed=seed) for seed, sizes in enumerate([(60, 10), (37, 80, 61)])]
    reference = ReferenceEngine(random_dataset(), dtype=torch.float64)
    for cohort, work in zip(engine.train_many(works), works, strict=True):
        assert_close(cohort, reference.train(work), place[2])


def test_threads_do_not_change_a_bit(cpu_engine):
    work, before = cohort_work(sizes=(60, 10)), torch.get_num_threads()
    cohorts = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            cohorts.append(cpu_engine.train(work))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert_same_bits(*cohorts)


@pytest.mark.parametrize("batch", [batched.EVALUATION_BATCH, 64])
def test_evaluation_is_that_of_the_reference(engine, place, batch, monkeypatch):
    monkeypatch.setattr(batched, "EVALUATION_BATCH", batch)
    dataset, weights = random_dataset(), random_weights(0)
    reference = ReferenceEngine(dataset, dtype=torch.float64)
    test, train = (dataset.test_images, dataset.test_labels), (dataset.train_images, dataset.train_labels)
    for images, labels in (test, test, train, (test[0], np.roll(test[1], 1)), test):
        right, loss = engine.evaluate(weights, images, labels)
        expected, expected_loss = reference.evaluate(weights, images, labels)
        assert right.tolist() == expected.tolist()
        assert loss == pytest.approx(expected_loss, abs=place[2])


def test_images_that_can_change_are_uploaded_again(cpu_engine):
    dataset, weights = random_dataset(), random_weights(0)
    images = dataset.test_images.copy()
    _, before = cpu_engine.evaluate(weights, images, dataset.test_labels)
    images[:] = images[::-1].copy()
    _, after = cpu_engine.evaluate(weights, images, dataset.test_labels)
    assert before != after
    assert after == cpu_engine.evaluate(weights, images.copy(), dataset.test_labels)[1]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        RuntimeError("MPS backend out of memory. Tried to allocate 20.00 GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 47040000000 bytes"),
    ],
    ids=["cuda", "mps", "cpu"],
)
def test_running_out_of_memory_says_what_to_lower(cpu_engine, error, monkeypatch):
    def run_out(*_):
        raise error

    monkeypatch.setattr(batched, "features", run_out)
    with pytest.raises(MemoryError, match=r"training 4 stacked devices: lower fraction .* batch_size.*--stack-seeds"):
        cpu_engine.train(cohort_work())
    dataset = random_dataset()
    with pytest.raises(MemoryError, match="evaluating"):
        cpu_engine.evaluate(random_weights(0), dataset.test_images, dataset.test_labels)


def test_other_errors_stay_what_they_are(cpu_engine, monkeypatch):
    def fail(*_):
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(batched, "features", fail)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        cpu_engine.train(cohort_work())


def test_bad_requests_are_named(cpu_engine):
    work = cohort_work()
    with pytest.raises(ValueError, match="same rule"):
        cpu_engine.train_many([work, replace(work, rule=replace(RULE, lr=0.1))])
    with pytest.raises(ValueError, match="at least one"):
        cpu_engine.train_many([])
    empty = random_device(np.arange(0), 1)
    with pytest.raises(ValueError, match="at least one image"):
        cpu_engine.train(replace(work, devices=(*work.devices, empty)))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA GPU")
def test_a_missing_gpu_is_named():
    with pytest.raises(ValueError, match="finds no cuda GPU"):
        BatchedEngine(random_dataset())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
@pytest.mark.parametrize("method", METHODS)
def test_nothing_waits_for_the_gpu_between_steps(method):
    engine, work = BatchedEngine(random_dataset()), cohort_work(method)
    expected = engine.train(work)
    ordered = sorted(work.devices, key=lambda device: -len(device.images))
    terms = engine._terms(work.rule, np.stack([work.weights] * 4), ordered)
    training = engine._plan([batched._visits(device, engine.train_count) for device in ordered], 50)
    own_images = engine._plan([device.images[None] for device in ordered], batched.SOFT_LABEL_BATCH)
    torch.cuda.set_sync_debug_mode("error")
    try:
        weights = engine._train(work.rule, terms, training)
        engine._soft_labels(weights, own_images)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert np.array_equal(weights.cpu().numpy()[0], expected.weights[0])
