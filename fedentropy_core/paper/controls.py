"""SCAFFOLD's control variates: how old they are in recorded runs, and how renewing them makes them grow."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from fedentropy_core.config import RunConfig
from fedentropy_core.data.load import load_dataset
from fedentropy_core.engines import make_engine
from fedentropy_core.federation import Federation, device_work
from fedentropy_core.methods import SCAFFOLDS, control_change
from fedentropy_core.report.looks import NAMES
from fedentropy_core.report.tables import Shown
from fedentropy_core.runs.record import RunRecord
from fedentropy_core.work import Work

WITHOUT_POOLS = "scaffold+entropy-no-pools"


def control_ages(record: RunRecord) -> np.ndarray:
    """[rounds, devices]: how many rounds old each device's control variate is when a round begins.

    It is renewed when the device is kept; one that never was counts from the start.
    """
    renewed, ages = np.zeros(record.config.devices), []
    for row in record.rounds.itertuples():
        ages.append(row.round - 1 - renewed)
        renewed[list(row.kept)] = row.round
    return np.array(ages)


def ages_table(mirrored: pd.DataFrame, diagnosis: pd.DataFrame) -> pd.DataFrame:
    """SCAFFOLD's mirrored runs on CIFAR-10 and those without pools: control variates' age over all devices and rounds,
    and the accuracy."""
    scaffold = mirrored["variant"].isin(["scaffold", "scaffold+entropy"]) & (mirrored["dataset"] == "cifar10")
    runs = mirrored[scaffold].sort_values(["case", "variant", "seed"])
    rows = []
    for run in pd.concat([runs, diagnosis[diagnosis["variant"] == WITHOUT_POOLS]]).itertuples():
        ages = control_ages(run.record)
        older = int(np.median(ages)), int(np.quantile(ages, 0.9))
        rows.append((run.case, run.variant, run.seed, *older, round(run.last_ten, 2), run.diverged))
    columns = ["case", "variant", "seed", "median age", "one in ten is older than", "last_ten", "diverged"]
    return pd.DataFrame(rows, columns=columns)


def ages_shown(table: pd.DataFrame) -> Shown:
    """The table as text."""
    names = NAMES | {WITHOUT_POOLS: "SCAFFOLD + FedEntropy without pools"}
    accuracy = [f"{row['last_ten']:.2f}{' (diverged)' * row['diverged']}" for _, row in table.iterrows()]
    text = table.assign(variant=table["variant"].map(names), last_ten=accuracy).drop(columns="diverged")
    return Shown(text.rename(columns={"variant": "method", "last_ten": "last ten"}))


def control_norms(federation: Federation, devices: Sequence[int], epochs: int, renewals: int) -> np.ndarray:
    """[renewals, devices]: ‖c_k‖ after each of several renewals, the global model and c = 0 held fixed.

    A renewal is a round of the device: local training with the correction c − c_k, then c_k ← c_k⁺, which is the
    mean of its local steps v. If the correction did not change where the device goes, every renewal would give
    the same but for the order of the images.
    """
    config, weights = replace(federation.config, epochs=epochs), federation.weights
    divisor = SCAFFOLDS["scaffold"].divisor
    control, controls, norms = np.zeros_like(weights), np.zeros((len(devices), len(weights)), weights.dtype), []
    for renewal in range(1, renewals + 1):
        work = tuple(
            device_work(config, federation.parts[d], federation.round + renewal, d, correction=control - own)
            for d, own in zip(devices, controls, strict=True)
        )
        cohort = federation.engine.train(Work(weights, config.local_rule, work))
        for own, local, steps in zip(controls, cohort.weights, cohort.steps, strict=True):
            own += control_change(weights, local, control, divisor(steps, config.lr))
        norms.append(np.linalg.norm(controls.astype(np.float64), axis=1))
    return np.array(norms)


def growth_table(config: RunConfig, cases: Sequence[int | str], epochs: Sequence[int], renewals: int) -> pd.DataFrame:
    """A row a case and number of local epochs: the median of ‖c_k‖ over devices after each renewal.

    The global model is FedAvg's after the rounds of `config`.
    """
    dataset, rows = load_dataset(config.dataset), []
    engine = make_engine("auto", dataset)
    for case in cases:
        federation = Federation(replace(config, case=case), dataset, engine)
        for _ in range(config.rounds):
            federation.play_round()
        for count in epochs:
            norms = control_norms(federation, range(config.chosen_per_round), count, renewals)
            rows.append((case, count, *np.median(norms, axis=1)))
    return pd.DataFrame(rows, columns=["case", "local epochs", *range(1, renewals + 1)])
