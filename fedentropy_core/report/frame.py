"""A row a run: its settings and what is measured of it. Every table and figure starts from here."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd

from fedentropy_core.config import RunConfig
from fedentropy_core.data.catalogue import SPECS, SYNTHETIC_CLASSES
from fedentropy_core.runs.listing import ignore
from fedentropy_core.runs.record import RunRecord

CLASSES = {name: len(spec.classes) for name, spec in SPECS.items()} | {"synthetic": len(SYNTHETIC_CLASSES)}
SETTINGS = tuple(RunConfig.__dataclass_fields__)
# Accuracies in percent, and what they are; the first is the paper's.
ACCURACIES = {
    "last_ten": "accuracy of the last ten rounds (%)",
    "last_hundred": "accuracy of the last hundred rounds (%)",
    "best": "accuracy of the best round (%)",
}
NAMED_BY = ["dataset", "case", "variant", "seed"]  # what tables say of a run
NEAR_CHANCE = 1.0  # points
SMOOTH = 20  # rounds: a single crossing favours noisy curves, that of a mean does not


def frame(records: Iterable[RunRecord], targets: Sequence[float] = ()) -> pd.DataFrame:
    """Every setting of a run, its `variant`, and: accuracies in percent; `diverged`; `at_chance`, within a point of
    guessing; `rounds` played; `models_up` and `megabytes_up` of the whole run; `record`, the run itself.

    For each target in percent `rounds_to_<target>`, the first round at or above it, `smooth_rounds_to_<target>`, the
    first at which the mean of 20 rounds is there, and `megabytes_to_<target>`, uploaded until the former; NaN where a
    run never gets there.
    """
    rows = [_row(record) | _reached(record, targets) for record in records]
    return pd.DataFrame(rows, columns=None if rows else [*_row_names(), "record"])


def _row(record: RunRecord) -> dict:
    rounds, config = record.rounds, record.config
    measured = {
        "last_ten": 100 * record.final_accuracy,
        "last_hundred": 100 * record.last_hundred_accuracy,
        "best": 100 * record.best_accuracy,
        "rounds_played": len(rounds),
        "diverged": record.diverged is not None,
        "models_up": int(rounds["models_up"].sum()),
        "megabytes_up": float(rounds["bytes_up"].sum()) / 1e6,
    }
    measured["at_chance"] = measured["last_ten"] < 100 / classes_of(record) + NEAR_CHANCE
    return asdict(config) | {"variant": config.label} | measured | {"record": record}


def _row_names() -> list[str]:
    measured = (*ACCURACIES, "rounds_played", "diverged", "models_up", "megabytes_up", "at_chance")
    return [*SETTINGS, "variant", *measured]


def classes_of(record: RunRecord) -> int:
    """How many labels there are; a record of one's own data says it itself."""
    counts = record.about.get("test_images")
    return len(counts) if counts else CLASSES[record.config.dataset]


def _reached(record: RunRecord, targets: Sequence[float]) -> dict[str, float]:
    return {f"{what}_to_{target:g}": value for target in targets for what, value in reached(record, target).items()}


def reached(record: RunRecord, target: float) -> dict[str, float]:
    """When a run first gets to a target in percent, by itself and by the mean of 20 rounds, and what it uploaded."""
    accuracy, target = record.rounds["accuracy"], target / 100
    rounds = _first(record, accuracy >= target)
    uploaded = record.rounds["bytes_up"].cumsum() / 1e6
    return {
        "rounds": rounds,
        "smooth_rounds": _first(record, accuracy.rolling(SMOOTH).mean() >= target),
        "megabytes": np.nan if np.isnan(rounds) else float(uploaded[record.rounds["round"] == rounds].iloc[0]),
    }


def _first(record: RunRecord, there: pd.Series) -> float:
    found = record.rounds["round"][there]
    return float(found.iloc[0]) if len(found) else np.nan


def cell(frame: pd.DataFrame, dataset: str, case: int | str, variant: str) -> pd.DataFrame:
    """The runs of a data set, case and variant, by seed."""
    found = (frame["dataset"] == dataset) & (frame["case"] == case) & (frame["variant"] == variant)
    return frame[found].sort_values("seed")


def same_seeds(frame: pd.DataFrame, variants: Sequence[str]) -> pd.DataFrame:
    """The runs to compare these variants by: on a data set and case the seeds of all that have any run there."""
    among = frame[frame["variant"].isin(variants)]
    place = [among["dataset"], among["case"].astype(str)]
    all_there = among["variant"].groupby(place).transform("nunique")
    with_seed = among["variant"].groupby([*place, among["seed"]]).transform("nunique")
    return among[all_there == with_seed]


def told_apart(frame: pd.DataFrame) -> pd.DataFrame:
    """Without runs that tables could not tell from each other, which a warning names."""
    alike = frame.duplicated(NAMED_BY, keep=False)
    for _, runs in frame[alike].groupby(NAMED_BY, sort=False):
        paths = ", ".join(str(record.path) for record in runs["record"])
        ignore(f"{paths} differ in settings that tables do not show: tables leave them out")
    return frame[~alike]
