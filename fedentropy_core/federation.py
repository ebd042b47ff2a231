"""A round: select, train, judge, aggregate, evaluate."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from fedentropy_core.config import RunConfig
from fedentropy_core.judgment import judge, keep_all
from fedentropy_core.machine import physical_memory
from fedentropy_core.methods import RoundOutcome, aggregate, make_method, move
from fedentropy_core.partition import partition
from fedentropy_core.randomness import generator
from fedentropy_core.selection import make_selection
from fedentropy_core.work import Cohort, Dataset, DeviceWork, Engine, Round, Work, weights_hash


class Diverged(Exception):
    """Training produced numbers that are not finite."""


class Federation:
    """One run's server and devices. All that changes from round to round is in `arrays`, and `round`."""

    def __init__(self, config: RunConfig, dataset: Dataset, engine: Engine):
        self.config, self.dataset, self.engine = config, dataset, engine
        self.parts = partition(dataset.train_labels, config.case, config.devices, config.partition_draw, config.beta)
        _check_memory(config, self.parts)
        from fedentropy_core.model import initial_weights  # with PyTorch, which records are read without

        self.round = 0
        self.weights = initial_weights(len(dataset.classes), generator(config.seed, "weights"))
        self.selection = make_selection(config.selection, config.devices, config.epsilon)
        self.method = make_method(config.method, config.devices, len(self.weights))

    def play_round(self) -> Round:
        """Algorithm 2, one round."""
        return self.end_round(self.engine.train(self.begin_round()))

    def begin_round(self) -> Work:
        """Selects the round's devices; what they are to train."""
        self._before_draw = self.selection.state()
        config, self.round = self.config, self.round + 1
        self.chosen = self.selection.draw(config.chosen_per_round, generator(config.seed, "selection", self.round))
        return Work(self.weights, config.local_rule, tuple(self._device_work(device) for device in self.chosen))

    def abandon_round(self) -> None:
        """As if the round had not been begun."""
        self.selection.restore(self._before_draw)
        self.round -= 1

    def end_round(self, cohort: Cohort) -> Round:
        """Judges and aggregates what the devices trained, and evaluates the new global model."""
        return self.settle_round(cohort)()

    def settle_round(self, cohort: Cohort) -> Callable[[], Round]:
        """Judges and aggregates what the devices trained. What it returns evaluates the new global model, in any
        thread, also while the next round trains, and gives the round's row."""
        config, chosen = self.config, self.chosen
        if not (np.isfinite(cohort.weights).all() and np.isfinite(cohort.soft_labels).all()):
            raise Diverged(f"round {self.round}: a local model or its output is not finite")
        sizes = np.array([len(self.parts[device]) for device in chosen])
        judgment = (judge if config.entropy else keep_all)(cohort.soft_labels, sizes)
        uploads = tuple(range(len(chosen))) if config.pools_only else judgment.kept
        self.method.update(RoundOutcome(self.weights, chosen, uploads, cohort, config.lr))
        mean = aggregate(cohort.weights[list(uploads)], sizes[list(uploads)])
        self.weights = move(self.weights, mean, config.global_step)
        kept = tuple(chosen[position] for position in judgment.kept)
        self.selection.settle(kept, tuple(chosen[position] for position in judgment.removed))

        row = Round(
            round=self.round,
            accuracy=math.nan,
            loss=math.nan,
            chosen=chosen,
            kept=kept,
            entropy_before=judgment.entropies[0],
            entropy_after=judgment.entropies[-1],
            models_up=len(uploads),
            bytes_up=self.bytes_up(len(uploads)),
            bytes_down=self.bytes_down(),
            weights=weights_hash(self.weights),
            correct=(),
        )
        return partial(self._evaluated, row, self.weights)

    def _evaluated(self, row: Round, weights: np.ndarray) -> Round:
        right, loss = self.engine.evaluate(weights, self.dataset.test_images, self.dataset.test_labels)
        accuracy = int(right.sum()) / len(self.dataset.test_images)
        return replace(row, accuracy=accuracy, loss=loss, correct=tuple(right.tolist()))

    def bytes_up(self, uploads: int) -> int:
        """Models and, with FedEntropy, every chosen device's soft label: 4 bytes a class and 8 for its size."""
        soft_label = 4 * len(self.dataset.classes) + 8 if self.config.entropy else 0
        return uploads * self._transfer_bytes() + self.config.chosen_per_round * soft_label

    def bytes_down(self) -> int:
        """The global model to every chosen device."""
        return self.config.chosen_per_round * self._transfer_bytes()

    def _transfer_bytes(self) -> int:
        return 4 * len(self.weights) * self.method.models_per_transfer

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything a checkpoint needs, by name."""
        selection = {f"selection.{name}": array for name, array in self.selection.state().items()}
        method = {f"method.{name}": array for name, array in self.method.state.items()}
        return {"weights": self.weights, **selection, **method}

    def restore(self, round: int, arrays: dict[str, np.ndarray]) -> None:
        """Goes on after `round` from the arrays of a checkpoint; a KeyError or ValueError if they do not fit."""
        selection = {name: arrays[f"selection.{name}"] for name in self.selection.state()}
        method = {name: arrays[f"method.{name}"] for name in self.method.state}
        for name, array in self.arrays().items():
            if name != "selection.positive" and arrays[name].shape != array.shape:
                raise ValueError(f"{name} has shape {arrays[name].shape}, not {array.shape}")
        self.round, self.weights = round, arrays["weights"]
        self.selection.restore(selection)
        self.method.state = method

    def _device_work(self, device: int) -> DeviceWork:
        return device_work(self.config, self.parts[device], self.round, device, **self.method.terms(device))


def _check_memory(config: RunConfig, parts: list[np.ndarray]) -> None:
    """Every visit of a round is drawn before it begins; a ValueError where this machine cannot hold them."""
    images = sum(sorted((len(part) for part in parts), reverse=True)[: config.chosen_per_round])
    needed = images * config.epochs * (np.dtype(np.int64).itemsize + 1)
    if needed > physical_memory():
        raise ValueError(
            f"epochs must be less: the order of {config.epochs:,} epochs over the {images:,} images of a round takes "
            f"{needed / 1e9:,.0f} GB, and this machine has {physical_memory() / 1e9:,.0f}"
        )


def device_work(
    config: RunConfig, images: np.ndarray, round: int, device: int, **terms: np.ndarray | None
) -> DeviceWork:
    """What a device draws for a round: its batch order and mirror flags, from its own generator."""
    rng = generator(config.seed, "batches", round, device)
    order = np.stack([rng.permutation(len(images)) for _ in range(config.epochs)])
    mirrored = config.augment == "mirror"
    mirror = rng.random(order.shape, dtype=np.float32) < 0.5 if mirrored else np.zeros(order.shape, dtype=bool)
    return DeviceWork(images, order, mirror, **terms)
