"""What passes between the rooms: images, work for an engine and what it gives back, a round's row. No PyTorch here.

An engine computes; it decides and draws nothing. Batch order and mirror flags arrive already drawn, so every
engine computes the same numbers up to float rounding.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images uint8 [n,3,32,32] and labels int64 [n], read-only, in canonical order."""

    name: str
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    classes: tuple[str, ...]
    fingerprint: str  # sha256 over the four arrays
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __post_init__(self) -> None:
        for array in (self.train_images, self.train_labels, self.test_images, self.test_labels):
            array.setflags(write=False)

    @property
    def pixel_values(self) -> np.ndarray:
        """float32 [3,256]: what a model sees for each channel and pixel byte v, (v/255 − mean)/std.

        The one definition of normalisation: engines look values up here, so none can round differently.
        """
        scaled = np.arange(256, dtype=np.float64) / 255
        mean, std = np.array(self.mean)[:, None], np.array(self.std)[:, None]
        return ((scaled - mean) / std).astype(np.float32)


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
    first_losses: bool = False  # whether the devices' losses before training are wanted as well


@dataclass(frozen=True)
class Cohort:
    """What K devices computed."""

    weights: np.ndarray  # [K, P]: the local models after training
    soft_labels: np.ndarray  # [K, C]: mean softmax output over the device's own images, not mirrored
    steps: np.ndarray  # int64 [K]: local steps taken
    losses: np.ndarray  # float64 [K]: mean cross-entropy over the device's own images, not mirrored, after training
    first_losses: np.ndarray | None = None  # float64 [K]: of the global model; where Work asks for it


class Engine(Protocol):
    """Trains cohorts on one data set's training images and evaluates models on any images."""

    name: str
    device: "torch.device"
    threads: int  # that it computes with

    def train(self, work: Work) -> Cohort: ...

    def train_many(self, works: Sequence[Work], stop: np.ndarray | None = None) -> list[Cohort]:
        """The cohorts of several runs, trained together. Once stop[0] is 1 it raises Halted, at the next batch."""
        ...

    def evaluate(self, weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, float]:
        """Of a model on uint8 images [n, 3, 32, 32]: how many of each class are right [C], and mean cross-entropy."""
        ...


@dataclass(frozen=True)
class Round:
    """One row of a record.

    `kept`: the devices that the judgment kept; `weights`: hash of the global weights; `correct`: right test images by
    class.
    """

    round: int
    accuracy: float
    loss: float
    chosen: tuple[int, ...]
    kept: tuple[int, ...]
    entropy_before: float
    entropy_after: float
    models_up: int
    bytes_up: int
    bytes_down: int
    weights: str
    correct: tuple[int, ...]

    def line(self, columns: Sequence[str] | None = None) -> str:
        """The row's text without its digest; floats in full, so that reading gives the same number."""
        values = (getattr(self, name) for name in columns or ROUND_COLUMNS)
        return ",".join(" ".join(map(str, value)) if isinstance(value, tuple) else str(value) for value in values)


ROUND_COLUMNS = tuple(field.name for field in fields(Round))


def weights_hash(weights: np.ndarray) -> str:
    """A short name of a weight vector's exact bits."""
    return hashlib.sha256(weights.astype("<f4").tobytes()).hexdigest()[:16]
