"""Rounds of real training, looked into: what would other groups of the chosen devices have given?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedentropy_core.config import RunConfig
from fedentropy_core.data.load import DatasetMissing, load_dataset
from fedentropy_core.engines import make_engine
from fedentropy_core.federation import Federation
from fedentropy_core.judgment import judge
from fedentropy_core.methods import aggregate
from fedentropy_core.report.groups import Group, best_group
from fedentropy_core.report.partitions import count_labels
from fedentropy_core.runs.record import RunRecord
from fedentropy_core.work import Cohort, Dataset, Engine

RANDOM_DRAWS = 5  # random groups whose averaged model is evaluated


@dataclass(frozen=True)
class PlayedRound:
    """A round of real training: `soft_labels` and `counts` (true labels) are [devices, classes]."""

    case: int | str
    seed: int
    round: int
    soft_labels: np.ndarray
    counts: np.ndarray
    accuracies: dict[str, float]  # of the model averaged over each group of `candidate_groups`, and "random"


def play(config: RunConfig, engine: str = "auto") -> list[PlayedRound]:
    """Trains a run and looks into each round: what would other groups have given, from the same local models?"""
    dataset = load_dataset(config.dataset)
    return _look_into(Federation(config, dataset, make_engine(engine, dataset)), config.rounds)


def play_on(record: RunRecord, rounds: int, engine: str = "auto") -> list[PlayedRound]:
    """Goes on where a recorded run ended, from its final weights and pools, and looks into each round."""
    dataset = load_dataset(record.config.dataset)
    federation = Federation(record.config, dataset, make_engine(engine, dataset))
    there = {"weights": record.weights, "selection.positive": _positive_pool(record)}
    federation.restore(len(record.rounds), federation.arrays() | there)
    return _look_into(federation, rounds)


def _positive_pool(record: RunRecord) -> np.ndarray:
    """The devices that were kept when they were last chosen, or never were."""
    positive = np.ones(record.config.devices, dtype=bool)
    for chosen, kept in zip(record.rounds["chosen"], record.rounds["kept"], strict=True):
        positive[list(chosen)] = False
        positive[list(kept)] = True
    return np.flatnonzero(positive)


def _look_into(federation: Federation, rounds: int) -> list[PlayedRound]:
    dataset, worker, seed = federation.dataset, federation.engine, federation.config.seed
    counts, played = count_labels(dataset.train_labels, federation.parts, len(dataset.classes)), []
    for _ in range(rounds):
        cohort = worker.train(federation.begin_round())
        held, number = counts[list(federation.chosen)], federation.round
        accuracies = _accuracies(worker, dataset, cohort, held, np.random.default_rng([seed, number]))
        federation.end_round(cohort)
        played.append(PlayedRound(federation.config.case, seed, number, cohort.soft_labels, held, accuracies))
    return played


def candidate_groups(soft_labels: np.ndarray, counts: np.ndarray) -> dict[str, Group]:
    """Who would be kept: by nobody's judgment, by the judgment and by the best group, on soft and on true labels."""
    true, sizes = shares(counts)
    return {
        "all chosen": tuple(range(len(sizes))),
        "judgment, soft labels": judge(soft_labels, sizes).kept,
        "best group, soft labels": best_group(soft_labels, sizes),
        "judgment, true labels": judge(true, sizes).kept,
        "best group, true labels": best_group(true, sizes),
    }


def _accuracies(
    worker: Engine, dataset: Dataset, cohort: Cohort, counts: np.ndarray, rng: np.random.Generator
) -> dict[str, float]:
    sizes = counts.sum(axis=1)

    def accuracy(group: Sequence[int]) -> float:
        model = aggregate(cohort.weights[list(group)], sizes[list(group)])
        right, _ = worker.evaluate(model, dataset.test_images, dataset.test_labels)
        return int(right.sum()) / len(dataset.test_images)

    groups = candidate_groups(cohort.soft_labels, counts)
    kept = len(groups["judgment, soft labels"])
    drawn = [rng.choice(len(sizes), kept, replace=False) for _ in range(RANDOM_DRAWS)]
    known = {group: accuracy(group) for group in set(groups.values())}
    return {name: known[group] for name, group in groups.items()} | {"random": float(np.mean([*map(accuracy, drawn)]))}


def shares(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Label distributions and sizes of devices."""
    sizes = counts.sum(axis=1)
    return counts / sizes[:, None], sizes


def with_weights(runs: pd.DataFrame) -> pd.DataFrame:
    """FedEntropy's runs of seed 0 on CIFAR-10 whose final weights are kept, by case."""
    wanted = (runs["dataset"] == "cifar10") & (runs["variant"] == "fedavg+entropy") & (runs["seed"] == 0)
    kept = np.array([record.path.with_suffix(".npz").exists() for record in runs["record"]], dtype=bool)
    return runs[wanted & kept].sort_values("case")


def play_all_on(runs: pd.DataFrame, rounds: int) -> list[PlayedRound]:
    """`rounds` more rounds of each run; none where the data set is not on this machine."""
    try:
        return [played for record in runs["record"] for played in play_on(record, rounds)]
    except DatasetMissing:
        return []
