"""How long a round takes on this machine, on synthetic data of the paper's size."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from fedentropy_core.bench.peaks import Peaks, measure_peaks, median_peaks
from fedentropy_core.config import RunConfig
from fedentropy_core.engines import make_engine
from fedentropy_core.machine import usable_cores
from fedentropy_core.methods import METHODS, SCAFFOLDS
from fedentropy_core.model import initial_weights
from fedentropy_core.work import Dataset, DeviceWork, Engine, Work

T = TypeVar("T")
CLASSES = 10
TRAIN_IMAGES, TEST_IMAGES = 50_000, 10_000


@dataclass(frozen=True)
class Setting:
    """The size of a round; the defaults are the paper's."""

    devices: int = 10
    images: int = 500
    epochs: int = 5
    batch_size: int = 50
    test_images: int = TEST_IMAGES

    def text(self) -> str:
        return (
            f"{self.devices} devices × {self.epochs} epochs × {self.images} images, batch {self.batch_size}, "
            f"{self.test_images:,} test images ({flops(self) / 1e9:.1f} GFLOP)"
        )


@dataclass(frozen=True)
class Timing:
    """Seconds of repeated rounds, training and evaluation apart."""

    engine: str
    method: str
    setting: Setting
    threads: int
    train: tuple[float, ...]
    evaluate: tuple[float, ...]

    @property
    def rounds(self) -> list[float]:
        return [train + evaluate for train, evaluate in zip(self.train, self.evaluate, strict=True)]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def gflops(self) -> float:
        """Useful GFLOP/s of the median round: FedAvg's arithmetic, whatever is done on top or spared."""
        return flops(self.setting) / self.median / 1e9


def flops(setting: Setting) -> int:
    """Floating-point operations of one FedAvg round: 2 for each multiply-add of a convolution or matrix product.

    A forward pass multiplies once with every weight at every output position. A step adds, for every layer, the same
    number again for the weights' gradient and, for every layer but the first, for the input's. Soft labels and
    evaluation are forward passes. Biases, pooling, softmax and the update are not counted (under 1 %). Terms that
    pooling makes zero are, though the native engine leaves out those of the kernels' gradients.
    """
    multiply_adds = {
        "conv1": 28 * 28 * 6 * 3 * 25,
        "conv2": 10 * 10 * 16 * 6 * 25,
        "fc1": 400 * 120,
        "fc2": 120 * 84,
        "fc3": 84 * CLASSES,
    }
    forward = sum(multiply_adds.values())
    step = 3 * forward - multiply_adds["conv1"]
    images = setting.devices * setting.images
    return 2 * (images * setting.epochs * step + (images + setting.test_images) * forward)


def synthetic_dataset(train: int = TRAIN_IMAGES, test: int = TEST_IMAGES) -> Dataset:
    """Random images and labels of CIFAR-10's size: what they show changes only how often a ReLU is closed."""
    rng = np.random.default_rng(0)
    return Dataset(
        name="noise",
        train_images=rng.integers(0, 256, (train, 3, 32, 32), dtype=np.uint8),
        train_labels=rng.integers(0, CLASSES, train),
        test_images=rng.integers(0, 256, (test, 3, 32, 32), dtype=np.uint8),
        test_labels=rng.integers(0, CLASSES, test),
        classes=tuple(map(str, range(CLASSES))),
        fingerprint="",
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
    )


def round_work(method: str, setting: Setting) -> Work:
    """A round of the paper's local training; every Moon device has a previous model, which is its costly case."""
    rng = np.random.default_rng(1)
    weights = initial_weights(CLASSES, rng)
    rule = RunConfig(method=method, batch_size=setting.batch_size).local_rule

    def near(size: float) -> np.ndarray:
        return rng.normal(0, size, weights.size).astype(np.float32)

    devices = tuple(
        DeviceWork(
            images=rng.choice(TRAIN_IMAGES, setting.images, replace=False),
            order=np.stack([rng.permutation(setting.images) for _ in range(setting.epochs)]),
            mirror=np.zeros((setting.epochs, setting.images), dtype=bool),
            correction=near(1e-3) if method in SCAFFOLDS else None,
            previous=weights + near(1e-2) if method == "moon" else None,
        )
        for _ in range(setting.devices)
    )
    return Work(weights, rule, devices)


def bench(
    engines: Sequence[str] = ("reference", "native"),
    methods: Sequence[str] = METHODS,
    rounds: int = 7,
    device: str | None = None,
    threads: int | None = None,
    setting: Setting | None = None,
    dataset: Dataset | None = None,
) -> tuple[list[Timing], Peaks]:
    """Each engine with each method, `rounds` times in turn after one to warm up; the peaks have turns too."""
    setting, threads = setting or Setting(), threads or usable_cores()
    dataset = dataset or synthetic_dataset()
    built = {name: make_engine(name, dataset, threads, device if name != "native" else None) for name in engines}
    works = {method: round_work(method, setting) for method in methods}
    spent = {pair: ([], []) for pair in ((name, method) for method in methods for name in engines)}
    peaks = []
    for turn in range(rounds + 1):
        peaks.append(measure_peaks(threads))
        for (name, method), (train, evaluate) in spent.items():
            training, evaluation = round_seconds(built[name], works[method], dataset, setting)
            if turn > 0:
                train.append(training)
                evaluate.append(evaluation)
    timings = [
        Timing(name, method, setting, threads, tuple(train), tuple(evaluate))
        for (name, method), (train, evaluate) in spent.items()
    ]
    return timings, median_peaks(peaks)


def growth(rounds: int = 3, threads: int | None = None, dataset: Dataset | None = None) -> dict[str, list[Timing]]:
    """The native engine's FedAvg round with more devices, more images a device, and one thread instead of all."""
    threads, dataset = threads or usable_cores(), dataset or synthetic_dataset()

    def one(setting: Setting, threads: int) -> Timing:
        return bench(("native",), ("fedavg",), rounds, threads=threads, setting=setting, dataset=dataset)[0][0]

    return {
        "devices": [one(Setting(devices=count), threads) for count in (10, 30, 100)],
        "images": [one(Setting(images=count), threads) for count in (50, 500, 5_000)],
        "threads": [one(Setting(), count) for count in sorted({1, threads})],
    }


def round_seconds(engine: Engine, work: Work, dataset: Dataset, setting: Setting) -> tuple[float, float]:
    """Of a round: seconds of local training, and of the evaluation."""
    images, labels = dataset.test_images[: setting.test_images], dataset.test_labels[: setting.test_images]
    train, _ = timed(lambda: engine.train(work))
    evaluate, _ = timed(lambda: engine.evaluate(work.weights, images, labels))
    return train, evaluate


def timed(action: Callable[[], T]) -> tuple[float, T]:
    """The seconds it takes, and its result."""
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result
