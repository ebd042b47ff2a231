"""The CPU engine: native.cpp, compiled on first use (build.py) and called through ctypes (which releases the GIL).

A device's whole local training is one call on one thread, so the number of threads cannot change a result.
"""

import ctypes
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path

import numpy as np
import torch

from fedentropy_core.engines.base import check_layers, results_of, stop_flag
from fedentropy_core.engines.build import build
from fedentropy_core.machine import usable_cores
from fedentropy_core.model import parameter_count
from fedentropy_core.work import Cohort, DeviceWork, LocalRule, Work

IMAGE_SHAPE = (3, 32, 32)
LARGEST_BATCH = 2**19  # images; native.cpp counts places in a batch's pixels with 32 bits
EVALUATION_CHUNK = 960  # images a call; fixed, so that losses are added in one order whatever the number of threads


# ---------------------------------------------------------------------------------------------------- library


class _Training(ctypes.Structure):
    """Training in native.cpp."""

    _fields_ = (
        [(name, ctypes.c_void_p) for name in ("images", "labels", "pixel_values", "positions", "order", "mirror")]
        + [(name, ctypes.c_void_p) for name in ("weights", "correction", "previous", "trained", "soft_label")]
        + [(name, ctypes.c_void_p) for name in ("loss", "first_loss", "stop")]
        + [(name, ctypes.c_int64) for name in ("n", "epochs", "batch_size", "classes", "correction_in_momentum")]
        + [(name, ctypes.c_double) for name in ("lr", "momentum", "prox_mu", "moon_mu", "moon_tau")]
    )


class Library:
    """The functions of native.cpp for one scalar type."""

    def __init__(self, path: Path, dtype: np.dtype):
        suffix = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64"}[np.dtype(dtype)]
        loaded = ctypes.CDLL(str(path))
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        self.train = loaded[f"train_{suffix}"]
        self.train.argtypes = [ctypes.POINTER(_Training)]
        self.evaluate = loaded[f"evaluate_{suffix}"]
        self.evaluate.argtypes = [pointer, pointer, integer, pointer, pointer, integer, pointer, pointer]
        self.exp, self.log = loaded[f"exp_{suffix}"], loaded[f"log_{suffix}"]
        for function in (self.exp, self.log):
            function.argtypes, function.restype = [pointer, pointer, integer], None


@lru_cache
def _library(march: str, dtype: np.dtype) -> Library:
    return Library(build(march), dtype)


# ---------------------------------------------------------------------------------------------------- engine


class NativeEngine:
    """Trains the devices of a round side by side, one a thread; float64 exists for tests."""

    name, device = "native", torch.device("cpu")

    def __init__(self, dataset, threads: int | None = None, dtype: type = np.float32, march: str = "native"):
        if np.dtype(dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise ValueError(f"dtype must be float32 or float64; got {np.dtype(dtype)}")
        self.classes = len(dataset.classes)
        check_layers(self.name, self.classes)
        self.parameters = parameter_count(self.classes)
        self.dtype = np.dtype(dtype)
        self.images, self.labels = _checked_images(
            dataset.train_images, dataset.train_labels, self.classes, "train_images", "train_labels"
        )
        self.pixel_values = _checked(dataset.pixel_values, np.float32, (3, 256), "pixel_values")
        if not np.isfinite(self.pixel_values).all():
            raise ValueError("pixel_values must be finite")
        self.library = _library(march, self.dtype)
        self.threads = threads or usable_cores()
        self.pool = ThreadPoolExecutor(self.threads)

    def train(self, work: Work) -> Cohort:
        return self.train_many([work])[0]

    def train_many(self, works: Sequence[Work], stop: np.ndarray | None = None) -> list[Cohort]:
        """All devices side by side, the longest first, so that no thread is left with a long one at the end."""
        stop = stop_flag() if stop is None else stop
        cohorts, jobs = zip(*(self._jobs(work, stop) for work in works), strict=True)
        longest_first = sorted(chain.from_iterable(jobs), key=lambda job: -job.struct.n * job.struct.epochs)
        results_of(self.pool, lambda job: _call(self.library.train, ctypes.byref(job.struct)), longest_first, stop)
        return list(cohorts)

    def _jobs(self, work: Work, stop: np.ndarray) -> tuple[Cohort, list["_Job"]]:
        """A cohort to be filled, and the calls that fill it."""
        weights = _checked(work.weights, self.dtype, (self.parameters,), "weights")
        _check_rule(work.rule)
        count = len(work.devices)
        trained = np.empty((count, self.parameters), self.dtype)
        soft_labels = np.empty((count, self.classes), self.dtype)
        losses, first = np.empty(count), np.empty(count) if work.first_losses else None
        jobs = [
            self._job(
                work.rule,
                weights,
                device,
                f"devices[{k}]",
                trained=trained[k],
                soft_label=soft_labels[k],
                loss=losses[k:],
                first_loss=None if first is None else first[k:],
                stop=stop,
            )
            for k, device in enumerate(work.devices)
        ]
        steps = [job.struct.epochs * -(-job.struct.n // job.struct.batch_size) for job in jobs]
        return Cohort(trained, soft_labels, np.array(steps, dtype=np.int64), losses, first), jobs

    def evaluate(self, weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, float]:
        """How many images of each class are right, and mean cross-entropy, of uint8 images [n, 3, 32, 32]."""
        weights = _checked(weights, self.dtype, (self.parameters,), "weights")
        images, labels = _checked_images(images, labels, self.classes, "images", "labels")
        if len(images) == 0:
            raise ValueError("images must hold at least one image")
        starts = range(0, len(images), EVALUATION_CHUNK)
        right, loss = np.zeros((len(starts), self.classes), np.int64), np.zeros(len(starts))

        def score(chunk: int) -> None:
            part = slice(starts[chunk], starts[chunk] + EVALUATION_CHUNK)
            _call(
                self.library.evaluate,
                *(_address(images[part]), _address(labels[part]), len(labels[part])),
                *(_address(self.pixel_values), _address(weights), self.classes),
                *(_address(right[chunk]), _address(loss[chunk:])),
            )

        results_of(self.pool, score, range(len(starts)), stop_flag())
        total = 0.0
        for part in loss:
            total += float(part)
        return right.sum(axis=0), total / len(images)

    def _job(
        self,
        rule: LocalRule,
        weights: np.ndarray,
        device: DeviceWork,
        name: str,
        **outputs: np.ndarray | None,
    ) -> "_Job":
        positions = _checked(device.images, np.int64, (None,), f"{name}.images")
        order = _checked(device.order, np.int64, (None, len(positions)), f"{name}.order")
        mirror = _checked(device.mirror, np.bool_, order.shape, f"{name}.mirror")
        if len(positions) == 0:
            raise ValueError(f"{name}.images must hold at least one image")
        if min(rule.batch_size, len(positions)) > LARGEST_BATCH:
            raise ValueError(
                f"batch_size must be at most {LARGEST_BATCH:,} for the native engine; got {rule.batch_size:,}"
            )
        _check_range(positions, len(self.images), f"{name}.images")
        _check_range(order, len(positions), f"{name}.order")
        extras = {
            field: None if value is None else _checked(value, self.dtype, (self.parameters,), f"{name}.{field}")
            for field, value in (("correction", device.correction), ("previous", device.previous))
        }
        arrays = {
            "images": self.images,
            "labels": self.labels,
            "pixel_values": self.pixel_values,
            "positions": positions,
            "order": order,
            "mirror": mirror,
            "weights": weights,
            **outputs,
            **extras,
        }
        struct = _Training(
            **{field: None if array is None else _address(array) for field, array in arrays.items()},
            **{"n": len(positions), "epochs": len(order), "batch_size": rule.batch_size, "classes": self.classes},
            correction_in_momentum=rule.correction_in_momentum,
            **{field: getattr(rule, field) for field in ("lr", "momentum", "prox_mu", "moon_mu", "moon_tau")},
        )
        return _Job(struct, tuple(arrays.values()))


@dataclass(frozen=True)
class _Job:
    """A call's argument with the arrays it points into: who holds the job holds them, whatever becomes of its maker."""

    struct: _Training
    arrays: tuple[np.ndarray | None, ...]


def _call(function, *arguments) -> None:
    if function(*arguments) != 0:
        raise MemoryError("the native engine could not allocate its work space")


def _address(array: np.ndarray) -> int:
    return array.ctypes.data


# ---------------------------------------------------------------------------------------------------- checks
# A wrong array would not raise an exception in C++, it would read someone else's memory.


def _checked(array: np.ndarray, dtype: type, shape: tuple[int | None, ...], name: str) -> np.ndarray:
    """The array, contiguous, if it has this type and shape (None: any length)."""
    if not isinstance(array, np.ndarray) or array.dtype != np.dtype(dtype):
        found = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise ValueError(f"{name} must be an array of {np.dtype(dtype)}; got {found}")
    fits = len(array.shape) == len(shape) and all(
        want in (None, have) for want, have in zip(shape, array.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("n" if length is None else str(length) for length in shape)
        raise ValueError(f"{name} must have shape [{wanted}]; got {list(array.shape)}")
    return np.ascontiguousarray(array)


def _checked_images(
    images: np.ndarray, labels: np.ndarray, classes: int, images_name: str, labels_name: str
) -> tuple[np.ndarray, np.ndarray]:
    images = _checked(images, np.uint8, (None, *IMAGE_SHAPE), images_name)
    labels = _checked(labels, np.int64, (len(images),), labels_name)
    _check_range(labels, classes, labels_name)
    return images, labels


def _check_range(indices: np.ndarray, end: int, name: str) -> None:
    if indices.size and not (indices.min() >= 0 and indices.max() < end):
        raise ValueError(f"{name} must lie in 0 … {end - 1}; found {indices.min()} … {indices.max()}")


def _check_rule(rule: LocalRule) -> None:
    if not 1 <= rule.batch_size < 2**63:
        raise ValueError(f"batch_size must be at least 1 and fit 64 bits; got {rule.batch_size}")
    if not rule.moon_tau > 0:
        raise ValueError(f"moon_tau must be greater than 0; got {rule.moon_tau}")
