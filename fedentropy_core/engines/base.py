"""What engines have in common: checks, and calls side by side that can be told to stop."""

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, wait

import numpy as np
import torch

from fedentropy_core.engines import UnsuitableModel
from fedentropy_core.interrupts import Halted
from fedentropy_core.model import layers


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
    which a call may look at, what waits is not begun, what runs is waited for. Halted if `stop` was 1 otherwise."""
    calls = []

    def unless_stopped(job):
        return None if stop[0] else function(job)

    try:
        for job in jobs:
            calls.append(pool.submit(unless_stopped, job))
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
