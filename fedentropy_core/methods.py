"""FedAvg, FedProx, SCAFFOLD and Moon: what a device adds to SGD, what the server does with the uploads.

A method gives the local terms of a chosen device (`terms`), and after a round is told who trained what and who
was kept (`update`). `state` holds the arrays that outlive a round; a checkpoint saves and restores them.
Sums over devices run element-wise in the order of selection, so they are the same bits on any CPU.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedentropy_core.work import Cohort

METHODS = ("fedavg", "fedprox", "scaffold", "scaffold-authors", "moon")


@dataclass(frozen=True)
class RoundOutcome:
    """A finished round: `chosen` are device numbers, `kept` positions in `chosen` (the devices that upload)."""

    global_weights: np.ndarray  # [P]: what the devices started from
    chosen: tuple[int, ...]
    kept: tuple[int, ...]
    cohort: Cohort
    lr: float


class Method(Protocol):
    models_per_transfer: int  # vectors of P numbers that go down to each chosen and up from each kept device
    state: dict[str, np.ndarray]

    def terms(self, device: int) -> dict[str, np.ndarray | None]:
        """What DeviceWork gets on top of plain SGD: its `correction` or `previous`."""
        ...

    def update(self, outcome: RoundOutcome) -> None: ...


def aggregate(models: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """w_g = Σ l_k w_k / Σ l_k, summed in double precision, device after device."""
    total = np.zeros(models.shape[1])
    for model, share in zip(models, sizes / np.cumsum(sizes)[-1], strict=True):
        total += share * model.astype(np.float64)
    return total.astype(models.dtype)


def move(start: np.ndarray, mean: np.ndarray, global_step: float) -> np.ndarray:
    """w_g + η·(mean − w_g), in double precision; the mean itself for η = 1."""
    if global_step == 1:
        return mean
    before = start.astype(np.float64)
    return (before + global_step * (mean.astype(np.float64) - before)).astype(mean.dtype)


def control_change(
    global_weights: np.ndarray, local_weights: np.ndarray, control: np.ndarray, divisor: float
) -> np.ndarray:
    """SCAFFOLD's c_k⁺ − c_k = (w_g − w_k)/divisor − c."""
    return (global_weights - local_weights) * np.float32(1 / divisor) - control


class FedAvg:
    """McMahan et al. 2017. FedProx (Li et al. 2020) is the same but for the engine's proximal term."""

    models_per_transfer = 1

    def __init__(self):
        self.state: dict[str, np.ndarray] = {}

    def terms(self, device: int) -> dict[str, np.ndarray | None]:
        return {}

    def update(self, outcome: RoundOutcome) -> None:
        pass


class Scaffold:
    """Karimireddy et al. 2020, option II.

    Every local step adds c − c_k to the update after the momentum step. A kept device's control becomes
    c_k⁺ = c_k − c + (w_g − w_k)/(K·lr) with K its local steps; c ← c + (1/N)·Σ (c_k⁺ − c_k). A removed device
    uploads nothing and keeps its c_k.
    """

    models_per_transfer = 2

    def __init__(self, devices: int, parameters: int):
        self.state = {
            "control": np.zeros(parameters, dtype=np.float32),
            "device_controls": np.zeros((devices, parameters), dtype=np.float32),
        }

    def terms(self, device: int) -> dict[str, np.ndarray | None]:
        return {"correction": self.state["control"] - self.state["device_controls"][device]}

    def update(self, outcome: RoundOutcome) -> None:
        control, device_controls = self.state["control"], self.state["device_controls"]
        before = control.copy()
        for position in outcome.kept:
            device = outcome.chosen[position]
            local, steps = outcome.cohort.weights[position], outcome.cohort.steps[position]
            change = control_change(outcome.global_weights, local, before, self.divisor(steps, outcome.lr))
            device_controls[device] += change
            control += change / np.float32(len(device_controls))

    @staticmethod
    def divisor(steps: int, lr: float) -> float:
        """What w_g − w_k is divided by for c_k⁺."""
        return steps * lr


class ScaffoldAuthors(Scaffold):
    """SCAFFOLD as the authors of FedEntropy coded its devices in June 2022; the server's half is assumed.

    The correction is inside the momentum (LocalRule.correction_in_momentum), and c_k⁺ = c_k − c + (w_g − w_k)/20
    whatever K and lr are.
    """

    @staticmethod
    def divisor(steps: int, lr: float) -> float:
        return 20.0


SCAFFOLDS = {"scaffold": Scaffold, "scaffold-authors": ScaffoldAuthors}


class Moon:
    """Li, He and Song 2021. A device keeps its newest local model, whether it was kept or removed."""

    models_per_transfer = 1

    def __init__(self, devices: int, parameters: int):
        self.state = {
            "previous": np.zeros((devices, parameters), dtype=np.float32),
            "has_previous": np.zeros(devices, dtype=bool),
        }

    def terms(self, device: int) -> dict[str, np.ndarray | None]:
        return {"previous": self.state["previous"][device].copy() if self.state["has_previous"][device] else None}

    def update(self, outcome: RoundOutcome) -> None:
        self.state["previous"][list(outcome.chosen)] = outcome.cohort.weights
        self.state["has_previous"][list(outcome.chosen)] = True


def make_method(name: str, devices: int, parameters: int) -> Method:
    """The method by its name in RunConfig.method."""
    if name in ("fedavg", "fedprox"):
        return FedAvg()
    return (SCAFFOLDS | {"moon": Moon})[name](devices, parameters)
