"""What a run leaves behind: a CSV with a row a round, a JSON beside it, and until then a checkpoint.

Each row ends with a digest: sha256 over the previous row's digest and this row, which holds a hash of the global
weights. An edit anywhere breaks the chain and shows when the record is loaded; a forged chain is caught by
training again up to that round.

A record's header says of which generation it is: columns that came later stand behind the first ones, and one that a
record does not have asks nothing of it. Since there is `correct`, the chain starts from the engine as well.
"""

import fcntl
import hashlib
import io
import json
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np
import pandas as pd

from fedentropy_core.config import RunConfig, stored_config
from fedentropy_core.datasets import known_fingerprint
from fedentropy_core.paths import atomic_write, results_root
from fedentropy_core.protocol import TABLE_ROUNDS, VERDICT_ROUNDS

if TYPE_CHECKING:
    import torch


class RecordError(Exception):
    """A record or checkpoint cannot be read, written or trusted; the message says what to do."""


class RecordLocked(RecordError):
    """Another process is working on the run."""


class OtherEngine(RecordError):
    """A run was begun with another engine, whose numbers differ in their last bits."""


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


def weights_hash(weights: np.ndarray) -> str:
    """A short name of a weight vector's exact bits."""
    return hashlib.sha256(weights.astype("<f4").tobytes()).hexdigest()[:16]


def first_digest(about: dict, columns: Sequence[str] = COLUMNS) -> str:
    """What the chain of a record with these columns starts from: configuration, data and, since there is `correct`,
    engine."""
    names = ("key", "data_fingerprint", "engine") if "correct" in columns else ("key", "data_fingerprint")
    return _short_hash(" ".join(str(about.get(name)) for name in names))


def next_digest(previous: str, line: str) -> str:
    return _short_hash(f"{previous} {line}")


def check_chain(lines: Sequence[str], first: str) -> str:
    """The last digest of rows with their digests; a ValueError names the first row that does not match its own."""
    digest = first
    for number, line in enumerate(lines, start=1):
        body, _, written = line.rpartition(",")
        digest = next_digest(digest, body)
        if digest != written:
            raise ValueError(f"round {number} does not match its digest")
    return digest


class RunFiles:
    """The files of one run: record (.csv and .json), weights (.npz), checkpoint (.ckpt) and lock (.lock).

    They are in the folder of a study, by default of the profile that the configuration belongs to. Only that fixes all
    settings, so elsewhere the name must tell the runs of a seed apart. A run on other images than the data set's name
    stands for, those of `fingerprint`, belongs to no study, and its name tells the images as well.
    """

    def __init__(
        self,
        config: RunConfig,
        results: Path | str | None = None,
        study: str | None = None,
        fingerprint: str | None = None,
    ):
        root = Path(results) if results is not None else results_root()
        known = known_fingerprint(config.dataset)
        self.config, self.fingerprint = config, fingerprint or known
        study, identity = study or config.profile, config.key
        if self.fingerprint != known:
            study, identity = "custom", _short_hash(f"{config.key} {fingerprint}")
        name = f"seed{config.seed}" if study == config.profile != "custom" else f"seed{config.seed}-{identity}"
        self.folder = root / study / "runs" / config.dataset / _case_name(config.case) / config.label
        self.csv, self.json = self.folder / f"{name}.csv", self.folder / f"{name}.json"
        self.weights = self.folder / f"{name}.npz"
        self.checkpoint, self.lock = self.folder / f"{name}.ckpt", self.folder / f"{name}.lock"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the run's lock, so that no other process works on it; fails at once on an unwritable folder."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = self.lock.open("w")
        except OSError as error:
            advice = "choose another results folder"
            raise RecordError(f"cannot write to {self.folder}: {error.strerror}; {advice}") from None
        with lock:
            if not _lock(lock, self.lock):
                raise RecordLocked(f"another process is working on {self.csv}")
            try:
                yield
            finally:
                self.lock.unlink(missing_ok=True)

    def write_record(self, lines: list[str], about: dict, weights: np.ndarray | None = None) -> None:
        """The CSV last: in its place it means that the record is complete."""
        text = "\n".join([",".join(COLUMNS), *lines]) + "\n"
        if weights is not None:
            buffer = io.BytesIO()
            np.savez(buffer, weights=weights)
            self._write(self.weights, buffer.getbuffer())
        self._write(self.json, (json.dumps(about, indent=2, sort_keys=True) + "\n").encode())
        self._write(self.csv, text.encode())
        self.checkpoint.unlink(missing_ok=True)

    def save_checkpoint(self, about: dict, lines: list[str], arrays: dict[str, np.ndarray]) -> None:
        buffer = io.BytesIO()
        np.savez(buffer, about=_text_array(json.dumps(about)), lines=_text_array("\n".join(lines)), **arrays)
        self._write(self.checkpoint, buffer.getbuffer())

    def load_checkpoint(self) -> tuple[dict, list[str], dict[str, np.ndarray]] | None:
        """The checkpoint; None where there is none, or where it is corrupt: then it is put aside with a warning."""
        if not self.checkpoint.exists():
            return None
        try:
            with np.load(self.checkpoint, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            about = json.loads(_array_text(arrays.pop("about")))
            return about, _array_text(arrays.pop("lines")).splitlines(), arrays
        except Exception as error:  # a damaged zip file raises almost anything
            self.set_checkpoint_aside(f"is corrupt ({error})")
            return None

    def set_checkpoint_aside(self, why: str) -> None:
        aside = self.checkpoint.with_suffix(".ckpt.bad")
        self.checkpoint.replace(aside)
        warnings.warn(
            f"checkpoint {self.checkpoint} {why}: kept aside as {aside.name}, starting from round 0", stacklevel=3
        )

    def _write(self, path: Path, content: bytes) -> None:
        try:
            with atomic_write(path) as file:
                file.write(content)
        except OSError as error:
            raise RecordError(
                f"cannot write {path}: {error.strerror}; what was written before is intact, "
                "run again to resume once there is room"
            ) from error


def load_record(csv: Path | str) -> RunRecord:
    """One record, its chain of digests checked."""
    csv = Path(csv)
    try:
        about = json.loads(csv.with_suffix(".json").read_text())
        config = stored_config(about["config"])
        # Lines end with \n alone: a reader that is kind to other signs would not see them edited.
        lines = csv.read_bytes().decode(errors="replace").removesuffix("\n").split("\n")
    except FileNotFoundError as error:
        raise RecordError(f"record {csv}: {error.filename} is missing") from None
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"record {csv.with_suffix('.json')} cannot be read: {error}") from None
    _check_record(csv, lines, config, about)
    try:
        rounds = _read_rounds(lines)
    except ValueError as error:
        raise RecordError(f"record {csv}: its rounds cannot be read: {error}") from None
    _check_correct(csv, rounds, about)
    return RunRecord(config, rounds, about, csv)


def load_records(study: str = "paper", results: Path | str | None = None) -> list[RunRecord]:
    """Every finished run of a study, in the order of their paths."""
    return [load_record(path) for path in record_paths(study, results)]


def record_paths(study: str = "paper", results: Path | str | None = None) -> list[Path]:
    """The CSV files of a study's finished runs."""
    root = Path(results) if results is not None else results_root()
    return sorted((root / study / "runs").rglob("*.csv"))


def about_run(config: RunConfig, fingerprint: str, engine: str, test_images: Sequence[int]) -> dict:
    """The part of a record's JSON that says what was computed; the same on every machine.

    `test_images`: how many of each class there are.
    """
    about = {"config": asdict(config), "key": config.key, "data_fingerprint": fingerprint, "engine": engine}
    return about | {"test_images": list(test_images)}


_COLUMN_TYPES = {"chosen": str, "kept": str, "weights": str, "correct": str, "digest": str}


def _check_record(csv: Path, lines: list[str], config: RunConfig, about: dict) -> None:
    columns = tuple(lines[0].split(","))
    if columns not in _GENERATIONS:
        raise RecordError(f"record {csv}: its first line does not have the columns of a record")
    ends_before = about.get("diverged", config.rounds + 1)
    if len(lines) != ends_before or len(lines) > config.rounds + 1:
        raise RecordError(f"record {csv}: not the {config.rounds} rounds of its configuration, nor a divergence's")
    if about.get("key") != config.key:
        raise RecordError(f"record {csv}: its JSON's key is not the key of its configuration")
    try:
        digest = check_chain(lines[1:], first_digest(about, columns))
    except ValueError as error:
        raise RecordError(f"record {csv}: {error}; the file was changed") from None
    if digest != about.get("final_digest"):
        raise RecordError(f"record {csv}: its last digest is not the one in its JSON; one of them was changed")


_GENERATIONS = [
    (*ROUND_COLUMNS[: len(ROUND_COLUMNS) - left_out], "digest") for left_out in range(len(LATER_COLUMNS) + 1)
]


def _read_rounds(lines: list[str]) -> pd.DataFrame:
    for number, line in enumerate(lines):
        if line.count(",") != lines[0].count(","):
            raise ValueError(f"round {number} does not have the columns of the first line")
    rounds = pd.read_csv(io.StringIO("\n".join(lines)), dtype=_COLUMN_TYPES, float_precision="round_trip")
    for column in ("chosen", "kept", "correct"):
        if column in rounds:
            rounds[column] = [_numbers(number, column, text) for number, text in enumerate(rounds[column], start=1)]
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


def _lock(file: TextIO, path: Path) -> bool:
    """Takes the lock if it is free. The last holder removes the file, so it must still be the one at `path`."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except (BlockingIOError, FileNotFoundError):
        return False


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _case_name(case: int | str) -> str:
    return f"case{case}" if isinstance(case, int) else case


def _text_array(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), dtype=np.uint8)


def _array_text(array: np.ndarray) -> str:
    return bytes(array).decode()
