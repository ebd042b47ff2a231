"""What an engine is given and what it gives back.

An engine computes; it decides and draws nothing. Batch order and mirror flags arrive already drawn, so every
engine computes the same numbers up to float rounding.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, wait
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from fedentropy_core.interrupts import Halted
from fedentropy_core.model import layers


@dataclass(frozen=True)
class LocalRule:
    """One local step: g = ∇loss, v ← momentum·v + g, w ← w − lr·v − lr·correction; v starts at zero every round.

    With `correction_in_momentum`: g = ∇loss + correction, v ← momentum·v + g, w ← w − lr·v.
    loss = cross-entropy + (prox_mu/2)·‖w − w_g‖² + moon_mu·ℓ_con, with
    ℓ_con = −log(exp(cos(z, z_g)/τ) / (exp(cos(z, z_g)/τ) + exp(cos(z, z_p)/τ))), the mean over the batch.
    """

    lr: float
    momentum: float
    batch_size: int
    prox_mu: float = 0.0
    moon_mu: float = 0.0
    moon_tau: float = 0.5
    correction_in_momentum: bool = False


@dataclass(frozen=True)
class DeviceWork:
    """One device's local training in one round; n images, E epochs."""

    images: np.ndarray  # int64 [n]: the device's images, as positions in the training set
    order: np.ndarray  # int64 [E, n]: the visiting order of each epoch, as positions in `images`
    mirror: np.ndarray  # bool [E, n]: whether the image visited at that place is mirrored left-right
    correction: np.ndarray | None = None  # [P]: SCAFFOLD's c − c_k
    previous: np.ndarray | None = None  # [P]: Moon's previous local model; None on first participation


@dataclass(frozen=True)
class Work:
    """A round's local training: every device starts from the same global weights."""

    weights: np.ndarray  # [P]
    rule: LocalRule
    devices: tuple[DeviceWork, ...]


@dataclass(frozen=True)
class Cohort:
    """What K devices computed."""

    weights: np.ndarray  # [K, P]: the local models after training
    soft_labels: np.ndarray  # [K, C]: mean softmax output over the device's own images, not mirrored
    steps: np.ndarray  # int64 [K]: local steps taken


class Engine(Protocol):
    """Trains cohorts on one data set's training images and evaluates models on any images."""

    name: str
    device: torch.device
    threads: int  # that it computes with

    def train(self, work: Work) -> Cohort: ...

    def train_many(self, works: Sequence[Work], stop: np.ndarray | None = None) -> list[Cohort]:
        """The cohorts of several runs, trained together. Once stop[0] is 1 it raises Halted, at the next batch."""
        ...

    def evaluate(self, weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, float]:
        """Of a model on uint8 images [n, 3, 32, 32]: how many of each class are right [C], and mean cross-entropy."""
        ...


class UnsuitableModel(ValueError):
    """An engine that is written for the paper's CNN meets another model."""


def check_layers(engine: str, classes: int) -> None:
    """Refuses a model whose layers are not those of the paper's CNN: such an engine would read past its weights."""
    built_for = {
        **{"conv1.weight": (6, 3, 5, 5), "conv1.bias": (6,), "conv2.weight": (16, 6, 5, 5), "conv2.bias": (16,)},
        **{"fc1.weight": (120, 400), "fc1.bias": (120,), "fc2.weight": (84, 120), "fc2.bias": (84,)},
        **{"fc3.weight": (classes, 84), "fc3.bias": (classes,)},
    }
    found = {layer.name: layer.shape for layer in layers(classes)}
    if list(found.items()) != list(built_for.items()):
        names = [name for name in {**built_for, **found} if built_for.get(name) != found.get(name)]
        differs = f"{names[0]} is {found.get(names[0], 'missing')}" if names else "its layers are in another order"
        raise UnsuitableModel(f"the {engine} engine computes the paper's CNN only, and in this model {differs}")


def results_of(pool: Executor, function: Callable, jobs: Iterable, stop: np.ndarray) -> list:
    """function(job) of every job, side by side. On an error or an interrupt no call is left behind: `stop` becomes 1,
    which a call may look at, what waits is cancelled, what runs is waited for. Halted if `stop` was 1 otherwise."""
    calls = []
    try:
        for job in jobs:
            calls.append(pool.submit(function, job))
        results = [call.result() for call in calls]
    except BaseException:
        stop[0] = 1
        for call in calls:
            call.cancel()
        wait(calls)
        raise
    if stop[0]:
        raise Halted
    return results


def stop_flag() -> np.ndarray:
    return np.zeros(1, np.int32)


def usable_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_device(name: str) -> torch.device:
    """The torch device of that name, if this machine has it."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"PyTorch knows no device {name!r}; cpu, cuda and mps are some") from None
    found = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
    if not found.get(device.type, lambda: True)():
        raise ValueError(f"this PyTorch finds no {device.type} GPU; on a CPU choose the native or reference engine")
    return device
