"""The native engine: its double build is float64 PyTorch, and bits do not depend on threads, CPUs or compilers."""

import hashlib
import itertools
import platform
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal, localcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedentropy_core.engines import BuildError, build, make_engine, native
from fedentropy_core.engines.native import NativeEngine
from fedentropy_core.engines.reference import ReferenceEngine
from fedentropy_core.model import initial_weights, layers, parameter_count
from fedentropy_core.work import DeviceWork, LocalRule, Work

pytestmark = pytest.mark.skipif(build.compiler() is None, reason="no C++ compiler")

IMAGES = 1_500
METHODS = ("fedavg", "fedprox", "scaffold", "scaffold-authors", "moon", "moon, first time")
ALL = METHODS[:-1]
SIZES = (500, 10, 37, 1_234)
BATCHES = (50, 7)
CLASSES = (10, 20)
# Every method with every size and batch at least once, and every pair of (classes, mirroring) with every method.
COVER = [
    (method, SIZES[(i + j) % 4], BATCHES[j % 2], CLASSES[(i + j) % 2], mirrored)
    for i, method in enumerate(ALL)
    for j, mirrored in enumerate((True, False, True, True))
] + [("moon, first time", 37, 7, 10, True)]


def made_dataset(classes: int) -> SimpleNamespace:
    """Random images. The pixel table is random too, so an engine that computes instead of looking up is caught."""
    rng = np.random.default_rng(classes)
    return SimpleNamespace(
        train_images=rng.integers(0, 256, (IMAGES, 3, 32, 32), dtype=np.uint8),
        train_labels=rng.integers(0, classes, IMAGES),
        classes=tuple(f"class {label}" for label in range(classes)),
        pixel_values=np.sort(rng.normal(size=(3, 256)).astype(np.float32)),
    )


DATASETS = {classes: made_dataset(classes) for classes in (1, 3, *CLASSES)}


def made_device(method: str, n: int, epochs: int, mirrored: bool, weights: np.ndarray, seed: int = 0) -> DeviceWork:
    rng = np.random.default_rng((seed, n))
    return DeviceWork(
        images=rng.choice(IMAGES, n, replace=False),
        order=np.stack([rng.permutation(n) for _ in range(epochs)]),
        mirror=rng.random((epochs, n)) < 0.5 if mirrored else np.zeros((epochs, n), bool),
        correction=(0.01 * rng.normal(size=weights.size)).astype(weights.dtype)
        if method.startswith("scaffold")
        else None,
        previous=(weights + 0.05 * rng.normal(size=weights.size)).astype(weights.dtype) if method == "moon" else None,
    )


def made_work(method: str, sizes: tuple[int, ...], batch: int, classes: int, mirrored=True, epochs=1, dtype=np.float32):
    """A round with terms large enough to matter: a mistake in one of them moves weights by far more than 1e-9.

    And small enough that training stays well-conditioned: with weights in the thousands, which ten times SCAFFOLD's
    correction gives after 500 steps, PyTorch's float64 differs from itself by 1e-5 when its start moves by 1e-15.
    """
    weights = initial_weights(classes, np.random.default_rng(1)).astype(dtype)
    rule = LocalRule(
        lr=0.02,
        momentum=0.5,
        batch_size=batch,
        prox_mu=0.5 if method == "fedprox" else 0.0,
        moon_mu=1.0 if method.startswith("moon") else 0.0,
        correction_in_momentum=method == "scaffold-authors",
    )
    return Work(weights, rule, tuple(made_device(method, n, epochs, mirrored, weights, k) for k, n in enumerate(sizes)))


def assert_same_bits(one, other) -> None:
    assert one.losses.tobytes() == other.losses.tobytes()
    assert one.weights.tobytes() == other.weights.tobytes()
    assert one.soft_labels.tobytes() == other.soft_labels.tobytes()
    assert (one.steps == other.steps).all()


def assert_agrees_with_pytorch(work: Work, dataset, tolerance: float = 1e-9) -> None:
    ours = NativeEngine(dataset, dtype=np.float64).train(work)
    theirs = ReferenceEngine(dataset, dtype=torch.float64).train(work)
    np.testing.assert_allclose(ours.weights, theirs.weights, rtol=0, atol=tolerance)
    np.testing.assert_allclose(ours.soft_labels, theirs.soft_labels, rtol=0, atol=tolerance)
    np.testing.assert_allclose(ours.losses, theirs.losses, rtol=0, atol=10 * tolerance)
    assert (ours.steps == theirs.steps).all()
    assert ours.weights.dtype == ours.soft_labels.dtype == np.float64


# ------------------------------------------------------------------------------------------------ against PyTorch


@pytest.mark.parametrize(("method", "n", "batch", "classes", "mirrored"), COVER)
def test_double_build_is_float64_pytorch(method, n, batch, classes, mirrored):
    epochs = 1 if n > 100 else 3
    work = made_work(method, (n,), batch, classes, mirrored, epochs, np.float64)
    assert_agrees_with_pytorch(work, DATASETS[classes])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("method", "n", "batch", "classes", "mirrored"),
    list(itertools.product(ALL, SIZES, BATCHES, CLASSES, (True, False))),
)
def test_double_build_is_float64_pytorch_for_every_combination(method, n, batch, classes, mirrored):
    work = made_work(method, (n,), batch, classes, mirrored, 3 if n > 100 else 5, np.float64)
    assert_agrees_with_pytorch(work, DATASETS[classes])


@settings(max_examples=25)
@given(
    n=st.integers(1, 70),
    batch=st.integers(1, 80),
    classes=st.sampled_from((1, 3, 10)),
    method=st.sampled_from(METHODS),
)
def test_any_device_size_batch_and_number_of_classes(n, batch, classes, method):
    assert_agrees_with_pytorch(made_work(method, (n,), batch, classes, dtype=np.float64), DATASETS[classes])


def test_flat_images_tie_in_every_pooling_window():
    dataset = made_dataset(10)
    dataset.train_images[:] = np.arange(IMAGES, dtype=np.uint8)[:, None, None, None]
    assert_agrees_with_pytorch(made_work("fedavg", (40,), 16, 10, epochs=2, dtype=np.float64), dataset)


@pytest.mark.parametrize("silent", ["own", "global", "previous", "all"])
def test_moon_with_features_that_are_all_zero(silent):
    """cos(z, 0) is 0 / ε; a network whose own features are zero gets no gradient through them."""
    work = made_work("moon", (30,), 10, 10, epochs=2, dtype=np.float64)
    parts, start = {}, 0
    for layer in layers(10):
        parts[layer.name] = slice(start, start + layer.size)
        start += layer.size
    weights, previous = work.weights.copy(), work.devices[0].previous.copy()
    if silent in ("own", "global", "all"):  # training starts from the global model, so its own features are zero too
        weights[parts["fc2.bias"]] = -100
    if silent in ("previous", "all"):
        previous[parts["fc2.bias"]] = -100
    work = Work(weights, work.rule, (replace(work.devices[0], previous=previous),))
    assert_agrees_with_pytorch(work, DATASETS[10])


def test_float_build_stays_near_the_double_build():
    """A ReLU or pooling gate that flips on rounding moves a weight by up to 1e-4 (PyTorch's float32 does the same),
    so the bound on single weights is wide; the mean difference over all weights is what rounding really costs."""
    for method in ALL:
        work = made_work(method, (500,), 50, 10, epochs=2)
        double = Work(
            work.weights.astype(np.float64),
            work.rule,
            tuple(
                replace(
                    device,
                    correction=None if device.correction is None else device.correction.astype(np.float64),
                    previous=None if device.previous is None else device.previous.astype(np.float64),
                )
                for device in work.devices
            ),
        )
        ours = NativeEngine(DATASETS[10]).train(work)
        exact = NativeEngine(DATASETS[10], dtype=np.float64).train(double)
        difference = np.abs(ours.weights - exact.weights)
        assert difference.max() < 1e-3, method
        assert difference.mean() < 1e-5, method
        np.testing.assert_allclose(ours.soft_labels, exact.soft_labels, rtol=0, atol=1e-3)
        assert ours.weights.dtype == ours.soft_labels.dtype == np.float32


@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("count", [1, 47, 1_500])
def test_evaluation_is_pytorchs(classes, count):
    dataset = DATASETS[classes]
    weights = initial_weights(classes, np.random.default_rng(2)).astype(np.float64)
    data = dataset.train_images[:count], dataset.train_labels[:count]
    right, loss = NativeEngine(dataset, dtype=np.float64).evaluate(weights, *data)
    expected, expected_loss = ReferenceEngine(dataset, dtype=torch.float64).evaluate(weights, *data)
    assert right.tolist() == expected.tolist()
    assert len(right) == classes
    assert loss == pytest.approx(expected_loss, abs=1e-12)
    right, loss = NativeEngine(dataset).evaluate(weights.astype(np.float32), *data)
    assert np.abs(right - expected).sum() <= 2e-3 * count
    assert loss == pytest.approx(expected_loss, abs=1e-5)


def test_equal_logits_are_answered_with_the_first_class():
    dataset = DATASETS[10]
    weights = np.zeros(parameter_count(10), np.float32)
    right, loss = NativeEngine(dataset).evaluate(weights, dataset.train_images, dataset.train_labels)
    assert right.tolist() == [(dataset.train_labels == 0).sum()] + [0] * 9
    assert loss == pytest.approx(np.log(10), abs=1e-6)


def test_large_logits_neither_overflow_nor_vanish():
    dataset = DATASETS[10]
    weights = initial_weights(10, np.random.default_rng(3)).astype(np.float64) * 30
    data = dataset.train_images[:200], dataset.train_labels[:200]
    right, loss = NativeEngine(dataset, dtype=np.float64).evaluate(weights, *data)
    expected, expected_loss = ReferenceEngine(dataset, dtype=torch.float64).evaluate(weights, *data)
    assert right.tolist() == expected.tolist()
    assert loss == pytest.approx(expected_loss, rel=1e-12)


# ------------------------------------------------------------------------------------------------ invariants


def test_mirroring_is_training_on_mirrored_images():
    work = made_work("fedavg", (40,), 16, 10)
    device = replace(work.devices[0], mirror=np.ones((1, 40), bool))
    flipped = SimpleNamespace(**{**vars(DATASETS[10]), "train_images": DATASETS[10].train_images[..., ::-1].copy()})
    ours = NativeEngine(DATASETS[10]).train(Work(work.weights, work.rule, (device,)))
    plain = replace(device, mirror=np.zeros((1, 40), bool))
    theirs = NativeEngine(flipped).train(Work(work.weights, work.rule, (plain,)))
    assert ours.weights.tobytes() == theirs.weights.tobytes()


def test_soft_labels_are_distributions_and_never_mirrored():
    work = made_work("fedavg", (90,), 16, 10)
    still = replace(work.rule, lr=0.0)
    mirrored = replace(work.devices[0], mirror=np.ones((1, 90), bool))
    engine = NativeEngine(DATASETS[10])
    one = engine.train(Work(work.weights, still, (work.devices[0],)))
    other = engine.train(Work(work.weights, still, (mirrored,)))
    assert_same_bits(one, other)
    assert one.weights.tobytes() == work.weights.tobytes()
    assert one.soft_labels.sum() == pytest.approx(1, abs=1e-6)


def test_steps_count_short_batches_and_epochs():
    work = made_work("fedavg", (10, 21, 70), 20, 10, epochs=3)
    assert NativeEngine(DATASETS[10]).train(work).steps.tolist() == [3, 6, 12]


# sha256 of weights and soft labels, from the engine before its kernels' gradients left out zeros; that of
# scaffold-authors is from the engine that learned it.
BITS = {
    "fedavg": "a5c8609a2f78bb7c",
    "fedprox": "f7e17dc469506053",
    "scaffold": "5e0d70d046454aa6",
    "scaffold-authors": "db706d41492c84cd",
    "moon": "b9e4693fe3fa5cc9",
}


@pytest.mark.parametrize("method", ALL)
def test_bits_are_those_of_the_shipped_records(method):
    """A faster engine must not change them: the audit of every record compares bit for bit."""
    cohort = NativeEngine(DATASETS[10]).train(made_work(method, (110, 37), 50, 10, epochs=2))
    found = hashlib.sha256(cohort.weights.tobytes() + cohort.soft_labels.tobytes())
    assert found.hexdigest().startswith(BITS[method])


# The same for last batches of 1, 7, 48 and 49 images and a device of one: without mirroring, then with. From the engine
# of commit ea47bcd, which audits every record exactly.
ODD_SIZES = (51, 57, 98, 99, 1)
ODD_BITS = {
    "fedavg": ("2f45168f56528566", "4452b608f9c37099"),
    "fedprox": ("de6964802009ab80", "d6a7119016a15dbb"),
    "scaffold": ("dac8a815f6585692", "2c181dc1b34250e5"),
    "scaffold-authors": ("c7b280f85c44272b", "962606129ea3a9e7"),
    "moon": ("57a5e4d4b450a01e", "690790262b270ea3"),
}


def has_avx512() -> bool:
    info = Path("/proc/cpuinfo")
    wanted = ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
    return info.exists() and all(flag in info.read_text().split() for flag in wanted)


@pytest.mark.parametrize("march", ["native", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("cxx", ["g++", "clang++"])
def test_bits_are_frozen_for_every_build(cxx, march, monkeypatch):
    """Whatever compiler, instruction set and number of threads, and however a device's images fall into batches."""
    if not shutil.which(cxx):
        pytest.skip(f"no {cxx}")
    if march != "native" and platform.machine() != "x86_64":
        pytest.skip("not an x86-64 CPU")
    if march == "x86-64-v4" and not has_avx512():
        pytest.skip("this CPU has no AVX-512")
    monkeypatch.setenv("CXX", cxx)
    library = native.Library(build.build(march), np.float32)
    for threads in (1, 2):
        engine = NativeEngine(DATASETS[10], threads)
        engine.library = library
        for method, digests in ODD_BITS.items():
            for mirrored, digest in enumerate(digests):
                cohort = engine.train(made_work(method, ODD_SIZES, 50, 10, bool(mirrored), epochs=2))
                found = hashlib.sha256(cohort.weights.tobytes() + cohort.soft_labels.tobytes()).hexdigest()
                assert found.startswith(digest), (method, mirrored, threads)


@pytest.mark.parametrize("method", ALL)
def test_same_bits_with_any_number_of_threads(method):
    work = made_work(method, (10, 120, 37, 64, 5), 50, 10, epochs=2)
    engines = [NativeEngine(DATASETS[10], threads) for threads in (1, 2, 3)]
    cohorts = [engine.train(work) for engine in engines]
    for cohort in cohorts[1:]:
        assert_same_bits(cohorts[0], cohort)
    data = DATASETS[10].train_images, DATASETS[10].train_labels
    assert (
        len({(tuple(right), loss) for right, loss in (engine.evaluate(work.weights, *data) for engine in engines)}) == 1
    )


def test_a_devices_result_does_not_depend_on_the_others():
    work = made_work("moon", (64, 10, 37), 16, 10)
    engine = NativeEngine(DATASETS[10])
    together = engine.train(work)
    for k, device in enumerate(work.devices):
        alone = engine.train(Work(work.weights, work.rule, (device,)))
        assert alone.weights[0].tobytes() == together.weights[k].tobytes()


def assert_builds_agree(one: NativeEngine, other: NativeEngine) -> None:
    """Whole trainings and an evaluation, bit for bit, for all methods, odd batches and odd device sizes."""
    for method, batch in itertools.product(ALL, (50, 7, 33)):
        work = made_work(method, (110, 37, 10, 1), batch, 10, epochs=2, dtype=one.dtype)
        assert_same_bits(one.train(work), other.train(work))
    data = DATASETS[10].train_images, DATASETS[10].train_labels
    (right, loss), (other_right, other_loss) = (engine.evaluate(work.weights, *data) for engine in (one, other))
    assert (right.tolist(), loss) == (other_right.tolist(), other_loss)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64-v3 and v4 are for x86-64 CPUs")
@pytest.mark.skipif(not has_avx512(), reason="this CPU has no AVX-512 (x86-64-v4)")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_bits_with_avx2_and_avx512(dtype):
    engines = [NativeEngine(DATASETS[10], dtype=dtype, march=march) for march in ("x86-64-v3", "x86-64-v4")]
    assert_builds_agree(*engines)


@pytest.mark.exhaustive
@pytest.mark.skipif(not (shutil.which("g++") and shutil.which("clang++")), reason="needs g++ and clang++")
def test_same_bits_with_gcc_and_clang(monkeypatch):
    engines = []
    for cxx in ("g++", "clang++"):
        monkeypatch.setenv("CXX", cxx)
        engine = NativeEngine(DATASETS[10])
        engine.library = native.Library(build.build(), np.float32)
        engines.append(engine)
    assert_builds_agree(*engines)


AARCH64 = ("aarch64-linux-gnu-g++", "qemu-aarch64")


@pytest.mark.exhaustive
@pytest.mark.skipif(not all(map(shutil.which, AARCH64)), reason=f"needs {' and '.join(AARCH64)}")
@pytest.mark.parametrize("method", ALL)
def test_same_bits_on_emulated_arm(method, tmp_path):
    """A small C++ program around native.cpp, cross-compiled for NEON, trains one device from a file."""
    work = made_work(method, (37,), 20, 10, epochs=2)
    expected = NativeEngine(DATASETS[10]).train(work)
    device, dataset = work.devices[0], DATASETS[10]
    (tmp_path / "driver.cpp").write_text(ARM_DRIVER.replace("NATIVE_CPP", str(build.SOURCE)))
    flags = [flag for flag in build._flags("armv8-a", False) if flag not in ("-shared", "-fPIC")]
    program = tmp_path / "driver"
    subprocess.run([AARCH64[0], *flags, "-static", str(tmp_path / "driver.cpp"), "-o", str(program)], check=True)
    nothing = np.zeros(0, np.float32)
    images = dataset.train_images[device.images]  # the emulated program gets only the device's own images
    arrays = {
        "images": images,
        "labels": dataset.train_labels[device.images],
        "pixel_values": dataset.pixel_values,
        "order": device.order,
        "mirror": device.mirror,
        "weights": work.weights,
        "correction": nothing if device.correction is None else device.correction,
        "previous": nothing if device.previous is None else device.previous,
    }
    for name, array in arrays.items():
        np.ascontiguousarray(array).tofile(tmp_path / name)
    rule = work.rule
    numbers = (
        *(len(images), 2, rule.batch_size, 10, int(rule.correction_in_momentum)),
        *(rule.lr, rule.momentum, rule.prox_mu, rule.moon_mu, rule.moon_tau),
    )
    subprocess.run([AARCH64[1], str(program), *map(repr, numbers)], cwd=tmp_path, check=True)
    assert (tmp_path / "trained").read_bytes() == expected.weights.tobytes()
    assert (tmp_path / "soft_label").read_bytes() == expected.soft_labels.tobytes()


ARM_DRIVER = r"""
#include "NATIVE_CPP"
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

static std::string file(const char* name) {
    std::ifstream in(name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

int main(int, char** a) {
    const std::string images = file("images"), labels = file("labels"), pixels = file("pixel_values"),
                      order = file("order"), mirror = file("mirror"), weights = file("weights"),
                      correction = file("correction"), previous = file("previous");
    std::vector<float> trained(weights.size() / 4), soft(std::stol(a[4]));
    std::vector<int64_t> positions(std::stol(a[1]));
    for (size_t i = 0; i < positions.size(); i++) positions[i] = int64_t(i);
    const int32_t stop = 0;
    Training<float> job{(const uint8_t*)images.data(),
                        (const int64_t*)labels.data(),
                        (const float*)pixels.data(),
                        positions.data(),
                        (const int64_t*)order.data(),
                        (const uint8_t*)mirror.data(),
                        (const float*)weights.data(),
                        correction.empty() ? nullptr : (const float*)correction.data(),
                        previous.empty() ? nullptr : (const float*)previous.data(),
                        trained.data(),
                        soft.data(),
                        &stop,
                        std::stol(a[1]), std::stol(a[2]), std::stol(a[3]), std::stol(a[4]), std::stol(a[5]),
                        std::stod(a[6]), std::stod(a[7]), std::stod(a[8]), std::stod(a[9]), std::stod(a[10])};
    if (train_f32(&job) != 0) return 1;
    std::ofstream("trained", std::ios::binary).write((const char*)trained.data(), trained.size() * 4);
    std::ofstream("soft_label", std::ios::binary).write((const char*)soft.data(), soft.size() * 4);
}
"""


# ------------------------------------------------------------------------------------------------ exp and log


def applied(function: str, x: np.ndarray) -> np.ndarray:
    y = np.empty_like(x)
    getattr(native.Library(build.build(), x.dtype), function)(x.ctypes.data, y.ctypes.data, len(x))
    return y


def error_in_units(function: str, x: np.ndarray) -> np.ndarray:
    """|error| in units of the last place of the true value, which decimal arithmetic gives to forty digits."""
    errors = []
    with localcontext() as context:
        context.prec = 40
        for argument, value in zip(x.tolist(), applied(function, x).tolist(), strict=True):
            true = Decimal(argument).exp() if function == "exp" else Decimal(argument).ln()
            unit = np.spacing(np.abs(x.dtype.type(float(true))))
            errors.append(float(abs(Decimal(value) - true) / Decimal(float(unit))))
    return np.array(errors)


@pytest.mark.parametrize(("dtype", "low", "high"), [(np.float32, -87, 88), (np.float64, -708, 709)])
def test_exp_is_within_two_units(dtype, low, high):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(low, high, 1500), rng.uniform(-1, 1, 1500), [0, low, high, -1e-20]]).astype(dtype)
    assert error_in_units("exp", x).max() < 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log_is_within_three_units(dtype):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(1, 100, 1500), np.exp(rng.uniform(-80, 80, 1500)), [0.7, 1.5, 2, 10]]).astype(dtype)
    assert error_in_units("log", x).max() < 3
    assert applied("log", np.ones(3, dtype)).tolist() == [0, 0, 0]


def test_exp_beyond_its_range_takes_the_bound():
    x = np.array([-1e30, -88, 89, 1e30, -np.inf, np.inf, np.nan], np.float32)
    low, high = applied("exp", np.array([-87, 88], np.float32))
    assert applied("exp", x)[:6].tolist() == [low, low, high, high, low, high]
    assert np.isnan(applied("exp", x)[6])


# ------------------------------------------------------------------------------------------------ bad inputs


def with_device(**changes):
    return lambda work: Work(work.weights, work.rule, (replace(work.devices[0], **changes),))


def with_rule(**changes):
    return lambda work: Work(work.weights, replace(work.rule, **changes), work.devices)


BAD_WORK = {
    "weights must have shape [62006]": lambda work: replace(work, weights=work.weights[:-1]),
    "weights must be an array of float32": lambda work: replace(work, weights=work.weights.astype(np.float64)),
    "devices[0].images must lie in 0 … 1499": with_device(images=np.full(20, IMAGES)),
    "devices[0].images must be an array of int64": with_device(images=np.arange(20.0)),
    "devices[0].images must hold at least one": with_device(
        images=np.zeros(0, np.int64), order=np.zeros((1, 0), np.int64), mirror=np.zeros((1, 0), bool)
    ),
    "devices[0].order must lie in 0 … 19": with_device(order=np.full((1, 20), -1)),
    "devices[0].order must have shape [n, 20]": with_device(order=np.zeros((1, 19), np.int64)),
    "devices[0].mirror must be an array of bool": with_device(mirror=np.zeros((1, 20), np.uint8)),
    "devices[0].mirror must have shape [1, 20]": with_device(mirror=np.zeros((2, 20), bool)),
    "devices[0].correction must have shape": with_device(correction=np.zeros(3, np.float32)),
    "devices[0].previous must be an array of float32; got list": with_device(previous=[0.0]),
    "batch_size must be at least 1": with_rule(batch_size=0),
    "moon_tau must be greater than 0": with_rule(moon_tau=0.0),
}


@pytest.mark.parametrize("message", BAD_WORK)
def test_bad_work_is_refused_by_name(message):
    work = made_work("fedavg", (20,), 10, 10)
    with pytest.raises(ValueError, match=message.replace("[", r"\[").replace("]", r"\]")):
        NativeEngine(DATASETS[10]).train(BAD_WORK[message](work))


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("train_images must be an array of uint8", {"train_images": np.zeros((2, 3, 32, 32), np.float32)}),
        ("train_images must have shape", {"train_images": np.zeros((2, 32, 32, 3), np.uint8)}),
        ("train_labels must have shape", {"train_labels": np.zeros(3, np.int64)}),
        ("train_labels must lie in 0 … 9", {"train_labels": np.full(IMAGES, 10)}),
        ("pixel_values must have shape", {"pixel_values": np.zeros((3, 255), np.float32)}),
        ("pixel_values must be finite", {"pixel_values": np.full((3, 256), np.nan, np.float32)}),
    ],
)
def test_bad_dataset_is_refused_by_name(message, changes):
    with pytest.raises(ValueError, match=message):
        NativeEngine(SimpleNamespace(**{**vars(DATASETS[10]), **changes}))


def test_bad_evaluation_and_settings_are_refused_by_name():
    engine, weights = NativeEngine(DATASETS[10]), np.zeros(parameter_count(10), np.float32)
    images = DATASETS[10].train_images[:2]
    with pytest.raises(ValueError, match="labels must lie in 0 … 9; found -1 … 3"):
        engine.evaluate(weights, images, np.array([-1, 3]))
    with pytest.raises(ValueError, match="images must hold at least one image"):
        engine.evaluate(weights, images[:0], np.zeros(0, np.int64))
    with pytest.raises(ValueError, match="threads must be at least 1"):
        make_engine("native", DATASETS[10], threads=0)
    with pytest.raises(ValueError, match="dtype must be float32 or float64"):
        NativeEngine(DATASETS[10], dtype=np.float16)


def test_arrays_that_are_not_contiguous_are_taken_as_they_mean():
    work = made_work("fedavg", (20,), 10, 10)
    strided = np.repeat(work.weights, 2)[::2]
    device = replace(work.devices[0], images=np.repeat(work.devices[0].images, 2)[::2])
    engine = NativeEngine(DATASETS[10])
    assert_same_bits(engine.train(work), engine.train(Work(strided, work.rule, (device,))))


# ------------------------------------------------------------------------------------------------ build


def fake_compiler(folder: Path, script: str) -> Path:
    path = folder / "fake-c++"
    path.write_text(f"#!{sys.executable}\n{script}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def counted_builds(tmp_path, monkeypatch) -> Path:
    """A compiler that only writes its output and a line in the file returned; its version is in $FAKE_VERSION."""
    log = tmp_path / "builds"
    script = f"""
import os, sys, time
if "--version" in sys.argv:
    sys.exit(print(os.environ.get("FAKE_VERSION", "1")))
time.sleep(0.2)
open({str(log)!r}, "a").write("built\\n")
open(sys.argv[-1], "w").write("whole")
"""
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path, script)))
    monkeypatch.delenv("FEDENTROPY_SANITIZE", raising=False)
    return log


def test_is_built_again_only_when_something_changed(tmp_path, counted_builds, monkeypatch):
    folder = tmp_path / "cache"
    first = build.build(folder=folder)
    assert build.build(folder=folder) == first
    assert counted_builds.read_text().count("built") == 1
    others = {build.build("x86-64-v3", folder=folder), build.build(sanitize=True, folder=folder)}
    monkeypatch.setenv("FAKE_VERSION", "2")
    others.add(build.build(folder=folder))
    monkeypatch.setattr(build, "SOURCE", tmp_path / "builds")
    others.add(build.build(folder=folder))
    assert len({first, *others}) == 5 == counted_builds.read_text().count("built")
    assert set(folder.iterdir()) == {first, *others}


def test_two_builds_at_once_leave_one_whole_library(tmp_path, counted_builds):
    with ThreadPoolExecutor(2) as pool:
        paths = set(pool.map(lambda _: build.build(folder=tmp_path / "cache"), range(2)))
    assert len(paths) == 1
    assert set((tmp_path / "cache").iterdir()) == paths
    assert paths.pop().read_text() == "whole"


@pytest.mark.usefixtures("counted_builds")
def test_where_the_installation_cannot_be_written_the_users_cache_is_taken(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("a folder cannot be here")
    monkeypatch.setattr(build, "CACHE", tmp_path / "file" / "_build")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    library = build.build()
    assert library.parent == tmp_path / "cache" / "fedentropy"
    assert build.build() == library
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert build.build().parent == tmp_path / "home" / ".cache" / "fedentropy"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(BuildError, match=r"cannot write to .*_build: Not a directory; cannot write to .*: Not a dir"):
        build.build()


@pytest.mark.usefixtures("counted_builds")
def test_a_library_that_came_with_the_installation_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "CACHE", tmp_path / "installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    library = build.build()
    assert library.parent == tmp_path / "installed"
    assert build.build() == library
    assert not (tmp_path / "cache").exists()


def test_without_a_compiler_the_set_up_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not build.available()
    with pytest.raises(BuildError, match="no C\\+\\+ compiler found"):
        build.build()
    build.announce()
    assert capsys.readouterr().out == "native engine: no C++ compiler found, the slower reference engine will be used\n"
    assert make_engine("auto", DATASETS[10]).name == "reference"


def test_a_chosen_compiler_that_does_not_exist_is_not_replaced(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert build.compiler() is None


def test_a_failing_compiler_is_quoted(tmp_path, monkeypatch, capsys):
    script = "import sys\nif '--version' not in sys.argv: sys.exit('line 1\\nthe reason')"
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path, script)))
    with pytest.raises(BuildError, match=r"could not compile native\.cpp for native:\nline 1\nthe reason"):
        build.build(folder=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
    with pytest.warns(UserWarning, match="the reason"):
        assert not build.available()
    build.announce()
    shown = capsys.readouterr().out
    assert "the reason" in shown
    assert "the slower reference engine will be used" in shown


def test_a_build_is_announced(capsys):
    build.announce()
    assert capsys.readouterr().out == "native engine: built for this CPU\n"
