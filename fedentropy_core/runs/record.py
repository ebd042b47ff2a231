"""What a run leaves behind: a CSV with a row a round, a JSON beside it, and until then a checkpoint.

Each row ends with a digest: sha256 over the previous row's digest and this row, which holds a hash of the global
weights. An edit anywhere breaks the chain and shows when the record is loaded; a forged chain is caught by
training again up to that round.

A record's header says of which generation it is: columns that came later stand behind the first ones, and one that a
record does not have asks nothing of it. Since there is `correct`, the chain starts from the engine as well.
"""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fedentropy_core.config import RunConfig, stored_config
from fedentropy_core.runs import shown
from fedentropy_core.runs.about import check_about
from fedentropy_core.runs.names import named, possible_names, short_hash
from fedentropy_core.work import ROUND_COLUMNS, weights_hash

if TYPE_CHECKING:
    import torch

TABLE_ROUNDS = 10  # the paper's measure: mean accuracy of the last ten rounds
VERDICT_ROUNDS = 100  # a less noisy one


class RecordError(Exception):
    """A record or checkpoint cannot be read, written or trusted; the message says what to do."""


class RecordLocked(RecordError):
    """Another process is working on the run."""


class OtherEngine(RecordError):
    """A run was begun with another engine, whose numbers differ in their last bits."""


COLUMNS = (*ROUND_COLUMNS, "digest")
LATER_COLUMNS = ("correct",)  # each generation of records has some first of these


@dataclass(frozen=True)
class RunRecord:
    """A finished run. `rounds` has a row a round, the columns of the CSV; `about` is the JSON.

    A run that diverged ends with the round before; its accuracies are those of the rounds that it has.
    """

    config: RunConfig
    rounds: pd.DataFrame
    about: dict
    path: Path

    def __repr__(self) -> str:
        return shown.line(self)

    def _repr_html_(self) -> str:
        return shown.page(self)

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of its file, without the digest."""
        return tuple(self.rounds.columns[:-1])

    @property
    def weights(self) -> np.ndarray:
        """The final global model as a flat vector, checked against the last row's hash."""
        path = self.path.with_suffix(".npz")
        if not path.exists():
            raise RecordError(f"{path} is not there: weights are kept by run(..., keep_weights=True) or --keep-weights")
        try:
            with np.load(path, allow_pickle=False) as file:
                weights = file["weights"]
            flat = weights.dtype == np.float32 and weights.ndim == 1  # the hash sees neither
            same = flat and weights_hash(weights) == self.rounds["weights"].iloc[-1]
        except Exception as error:  # a damaged zip file raises almost anything
            raise RecordError(f"weights {path} cannot be read: {error}") from None
        if not same:
            raise RecordError(f"weights {path} are not those of the record's last round: one of them was changed")
        return weights

    def model(self) -> "torch.nn.Module":
        """The final global model."""
        from fedentropy_core.model import build  # records are read without PyTorch

        return build(self.weights, len(self.about["test_images"]))

    @property
    def diverged(self) -> int | None:
        """The round in which a local model, or its output, was no longer finite; None if all rounds were played."""
        return self.about.get("diverged")

    @property
    def final_accuracy(self) -> float:
        """Mean test accuracy of the last ten rounds: the paper's accuracy of a run."""
        return float(self.rounds["accuracy"].tail(TABLE_ROUNDS).mean())

    @property
    def last_hundred_accuracy(self) -> float:
        """Mean test accuracy of the last hundred rounds, a less noisy measure than the paper's."""
        return float(self.rounds["accuracy"].tail(VERDICT_ROUNDS).mean())

    @property
    def best_accuracy(self) -> float:
        """Test accuracy of the best round."""
        return float(self.rounds["accuracy"].max())

    def rounds_to(self, target: float) -> int | None:
        """The first round, counted from 1, whose test accuracy is at least `target` (0 to 1); None if none is."""
        reached = self.rounds["round"][self.rounds["accuracy"] >= target]
        return int(reached.iloc[0]) if len(reached) else None


def first_digest(about: dict, columns: Sequence[str] = COLUMNS) -> str:
    """What the chain of a record with these columns starts from: configuration, data and, since there is `correct`,
    engine."""
    names = ("key", "data_fingerprint", "engine") if "correct" in columns else ("key", "data_fingerprint")
    return short_hash(" ".join(str(about.get(name)) for name in names))


def next_digest(previous: str, line: str) -> str:
    return short_hash(f"{previous} {line}")


def check_chain(lines: Sequence[str], first: str) -> str:
    """The last digest of rows with their digests; a ValueError names the first row that does not match its own."""
    digest = first
    for number, line in enumerate(lines, start=1):
        body, _, written = line.rpartition(",")
        digest = next_digest(digest, body)
        if digest != written:
            raise ValueError(f"round {number} does not match its digest")
    return digest


def load_record(csv: Path | str) -> RunRecord:
    """One record, checked: that its JSON says what every record says, its chain of digests, its rounds, and that it is
    the run whose place it stands in; a copy elsewhere is not asked for its place."""
    csv = Path(csv)
    about, config = _read_about(csv)
    # Lines end with \n alone: a reader that is kind to other signs would not see them edited.
    lines = _text(csv, csv).removesuffix("\n").split("\n")
    _check_record(csv, lines, config, about)
    _check_place(csv, config, about["data_fingerprint"])
    try:
        rounds = _read_rounds(lines, config)
    except (ValueError, OverflowError) as error:
        raise RecordError(f"record {csv}: its rounds cannot be read: {error}") from None
    _check_correct(csv, rounds, about)
    return RunRecord(config, rounds, about, csv)


def _read_about(csv: Path) -> tuple[dict, RunConfig]:
    path = csv.with_suffix(".json")
    text = _text(csv, path)
    try:
        about = json.loads(text)
        if not isinstance(about, dict):
            raise ValueError("it is no table")
        config = stored_config(about.get("config"))
        check_about(about)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise RecordError(f"record {path} cannot be read: {error}") from None
    if about["key"] != config.key:
        raise RecordError(f"record {path}: its key is not the key of its configuration")
    return about, config


def _text(csv: Path, path: Path) -> str:
    """One of a record's two files."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        raise RecordError(f"record {csv}: {path} is missing") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"record {path} cannot be read: {error}") from None


_COLUMN_TYPES = dict.fromkeys(("chosen", "kept", "weights", "correct", "digest"), "str")
_COLUMN_TYPES |= dict.fromkeys(("round", "models_up", "bytes_up", "bytes_down"), "int64")
_COLUMN_TYPES |= dict.fromkeys(("accuracy", "loss", "entropy_before", "entropy_after"), "float64")


def _check_record(csv: Path, lines: list[str], config: RunConfig, about: dict) -> None:
    columns = tuple(lines[0].split(","))
    if columns not in _GENERATIONS:
        raise RecordError(f"record {csv}: its first line does not have the columns of a record")
    ends_before = about.get("diverged", config.rounds + 1)
    most = config.rounds + ("diverged" not in about)
    if type(ends_before) is not int or len(lines) != ends_before or len(lines) > most:
        raise RecordError(f"record {csv}: not the {config.rounds} rounds of its configuration, nor a divergence's")
    try:
        digest = check_chain(lines[1:], first_digest(about, columns))
    except ValueError as error:
        raise RecordError(f"record {csv}: {error}; the file was changed") from None
    if digest != about["final_digest"]:
        raise RecordError(f"record {csv}: its last digest is not the one in its JSON; one of them was changed")


def _check_place(csv: Path, config: RunConfig, fingerprint: str) -> None:
    place = named(csv)
    if place is None:
        return
    right = possible_names(config, place.study, fingerprint)
    if place.name not in right:
        raise RecordError(
            f"record {csv} stands in another's place: by its configuration and images it is {' or '.join(right)} "
            f"of the study {place.study}; move it there, or delete it"
        )


_GENERATIONS = [
    (*ROUND_COLUMNS[: len(ROUND_COLUMNS) - left_out], "digest") for left_out in range(len(LATER_COLUMNS) + 1)
]


def _read_rounds(lines: list[str], config: RunConfig) -> pd.DataFrame:
    for number, line in enumerate(lines):
        if line.count(",") != lines[0].count(","):
            raise ValueError(f"round {number} does not have the columns of the first line")
    rounds = pd.read_csv(io.StringIO("\n".join(lines)), dtype=_COLUMN_TYPES, float_precision="round_trip")
    for column in ("chosen", "kept", "correct"):
        if column in rounds:
            rounds[column] = [_numbers(number, column, text) for number, text in enumerate(rounds[column], start=1)]
    if rounds["round"].tolist() != list(range(1, len(lines))):
        raise ValueError("they are not numbered from 1 on")
    if not rounds["accuracy"].between(0, 1).all():
        raise ValueError("an accuracy is not between 0 and 1")
    unknown = set().union(*rounds["chosen"], *rounds["kept"]).difference(range(config.devices))
    if unknown:
        raise ValueError(f"there is no device {min(unknown)} in its configuration")
    return rounds


def _numbers(number: int, column: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, text.split()))
    except (ValueError, AttributeError):  # an empty cell is read as NaN
        raise ValueError(f"{column} of round {number} is no list of whole numbers") from None


def _check_correct(csv: Path, rounds: pd.DataFrame, about: dict) -> None:
    """Right test images by class must add up to the accuracy."""
    if "correct" not in rounds:
        return
    there = about.get("test_images")
    counts = isinstance(there, list) and all(type(count) is int and count >= 0 for count in there)
    if not (counts and sum(there)):
        raise RecordError(f"record {csv}: its JSON does not say how many test images of each class there are")
    for number, accuracy, correct in zip(rounds["round"], rounds["accuracy"], rounds["correct"], strict=True):
        if len(correct) != len(there):
            raise RecordError(
                f"record {csv}: the right test images of round {number} are of {len(correct)} classes, "
                f"those in its JSON of {len(there)}"
            )
        possible = all(0 <= right <= most for right, most in zip(correct, there, strict=True))
        if not possible or sum(correct) / sum(there) != accuracy:
            raise RecordError(f"record {csv}: the right test images of round {number} do not add up to its accuracy")
