"""How long a round takes on this machine: the engines side by side, on synthetic data of the paper's size.

Engines and methods take turns within one run, so that whatever else the machine does falls on all of them alike.
"""

import argparse
import json
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch

from fedentropy_core import bench_against
from fedentropy_core.config import RunConfig
from fedentropy_core.engines import make_engine
from fedentropy_core.engines.build import available
from fedentropy_core.files import atomic_write
from fedentropy_core.machine import cpu_model, usable_cores
from fedentropy_core.methods import METHODS, SCAFFOLDS
from fedentropy_core.model import initial_weights
from fedentropy_core.work import Dataset, DeviceWork, Engine, Work

CLASSES = 10
TRAIN_IMAGES, TEST_IMAGES = 50_000, 10_000
GEMM_SIZE = 2_048


@dataclass(frozen=True)
class Setting:
    """The size of a round; the defaults are the paper's."""

    devices: int = 10
    images: int = 500
    epochs: int = 5
    batch_size: int = 50
    test_images: int = TEST_IMAGES


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


def gemm_rate(threads: int, seconds: float = 0.5) -> float:
    """GFLOP/s of float32 matrix products kept up for about as long as a round: what a tuned library reaches here."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    a, b = torch.rand(GEMM_SIZE, GEMM_SIZE), torch.rand(GEMM_SIZE, GEMM_SIZE)
    start, count = time.perf_counter(), 0
    while (spent := time.perf_counter() - start) < seconds:
        torch.mm(a, b)
        count += 1
    torch.set_num_threads(before)
    return count * 2 * GEMM_SIZE**3 / spent / 1e9


def synthetic_dataset() -> Dataset:
    """Random images and labels of CIFAR-10's size: what they show changes only how often a ReLU is closed."""
    rng = np.random.default_rng(0)
    return Dataset(
        name="noise",
        train_images=rng.integers(0, 256, (TRAIN_IMAGES, 3, 32, 32), dtype=np.uint8),
        train_labels=rng.integers(0, CLASSES, TRAIN_IMAGES),
        test_images=rng.integers(0, 256, (TEST_IMAGES, 3, 32, 32), dtype=np.uint8),
        test_labels=rng.integers(0, CLASSES, TEST_IMAGES),
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
            mirror=rng.random((setting.epochs, setting.images)) < 0.5,
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
) -> tuple[list[Timing], float]:
    """Each engine with each method, `rounds` times in turn after one round to warm up.

    Also the GEMM peak in GFLOP/s: the median of a matrix product's turns among them.
    """
    setting, threads = setting or Setting(), threads or usable_cores()
    dataset = dataset or synthetic_dataset()
    built = {name: make_engine(name, dataset, threads, device if name != "native" else None) for name in engines}
    works = {method: round_work(method, setting) for method in methods}
    seconds = {pair: ([], []) for pair in ((name, method) for method in methods for name in engines)}
    gemm = []
    for turn in range(rounds + 1):
        gemm.append(gemm_rate(threads))
        for (name, method), (train, evaluate) in seconds.items():
            spent = _round_seconds(built[name], works[method], dataset, setting)
            if turn > 0:
                train.append(spent[0])
                evaluate.append(spent[1])
    timings = [
        Timing(name, method, setting, threads, tuple(train), tuple(evaluate))
        for (name, method), (train, evaluate) in seconds.items()
    ]
    return timings, statistics.median(gemm)


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


def peak_memory() -> float:
    """MB of memory this process has held at most; it includes the data set (184 MB) and PyTorch itself."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def _round_seconds(engine: Engine, work: Work, dataset: Dataset, setting: Setting) -> tuple[float, float]:
    images, labels = dataset.test_images[: setting.test_images], dataset.test_labels[: setting.test_images]
    train = _seconds(lambda: engine.train(work))
    return train, _seconds(lambda: engine.evaluate(work.weights, images, labels))


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


# ---------------------------------------------------------------------------------------------------- command


def main(options: argparse.Namespace) -> None:
    """Times, prints tables and, only if asked, writes the timings."""
    if options.rounds is not None and options.rounds < 1:
        raise ValueError(f"rounds must be at least 1; got {options.rounds}")
    if options.against:
        return bench_against.main(options)
    rounds = options.rounds or 7
    threads, dataset, has_native = options.threads or usable_cores(), synthetic_dataset(), available()
    engines = tuple(options.engines or (("reference", "native") if has_native else ("reference",)))
    timings, peak = bench(engines, options.methods or METHODS, rounds, options.device, threads, dataset=dataset)
    print(f"one round of {_describe(Setting())}, {threads} threads; GEMM peak {peak:.0f} GFLOP/s")
    print(_comparison(timings, peak))
    growing = growth(max(1, rounds // 2), threads, dataset) if has_native and not options.no_growth else {}
    for axis, series in growing.items():
        print(f"\nnative, FedAvg, growing {axis}")
        print(_growth_table(series, peak))
    print(f"\npeak memory {peak_memory():.0f} MB")
    if options.write:
        report = {
            "machine": {"processor": cpu_model(), "threads": threads, "gemm_gflops": peak},
            "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
            "engines": [_as_record(timing, peak) for timing in timings],
            "growth": {axis: [_as_record(timing, peak) for timing in series] for axis, series in growing.items()},
            "peak_memory_mb": round(peak_memory()),
        }
        with atomic_write(options.write) as file:
            file.write((json.dumps(report, indent=1) + "\n").encode())
        print(f"wrote {options.write}")


def _comparison(timings: list[Timing], peak: float) -> str:
    """A row an engine and method; the ratio is to the first engine's median with the same method."""
    lines = [
        f"{'method':10}{'engine':11}{'s/round':>9}{'spread':>15}{'evaluation':>12}{'ratio':>8}{'vs fedavg':>11}"
        f"{'GFLOP/s':>9}{'of peak':>9}"
    ]
    first: dict[str, float] = {}
    plain = {timing.engine: timing.median for timing in timings if timing.method == "fedavg"}
    for timing in timings:
        ratio = first.setdefault(timing.method, timing.median) / timing.median
        to_plain = f"{timing.median / plain[timing.engine]:.2f}" if timing.engine in plain else "–"
        share = statistics.median(timing.evaluate) / timing.median
        lines.append(
            f"{timing.method:10}{timing.engine:11}{timing.median:9.3f}{_spread(timing):>15}{share:12.0%}{ratio:7.2f}×"
            f"{to_plain:>11}{timing.gflops:9.0f}{timing.gflops / peak:9.0%}"
        )
    return "\n".join(lines)


def _growth_table(series: list[Timing], peak: float) -> str:
    lines = [f"{'devices':>8}{'images':>8}{'threads':>9}{'s/round':>9}{'spread':>15}{'GFLOP/s':>9}{'of peak':>9}"]
    lines += [
        f"{timing.setting.devices:8}{timing.setting.images:8}{timing.threads:9}{timing.median:9.3f}"
        f"{_spread(timing):>15}{timing.gflops:9.0f}{timing.gflops / peak:9.0%}"
        for timing in series
    ]
    return "\n".join(lines)


def _spread(timing: Timing) -> str:
    return f"{min(timing.rounds):.3f}–{max(timing.rounds):.3f}"


def _describe(setting: Setting) -> str:
    return (
        f"{setting.devices} devices × {setting.epochs} epochs × {setting.images} images, batch {setting.batch_size}, "
        f"{setting.test_images:,} test images ({flops(setting) / 1e9:.1f} GFLOP)"
    )


def _as_record(timing: Timing, peak: float) -> dict:
    measured = {"median": timing.median, "gflops": timing.gflops, "share_of_peak": timing.gflops / peak}
    return {**asdict(timing), **measured}
