"""Where a run's files are, and how they are written: record, weights, checkpoint, lock."""

import io
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from fedentropy_core.config import RunConfig
from fedentropy_core.data.load import known_fingerprint
from fedentropy_core.files import atomic_write, results_root
from fedentropy_core.runs.names import run_name
from fedentropy_core.runs.record import COLUMNS, RecordError, RecordLocked


class RunFiles:
    """The files of one run: record (.csv and .json), weights (.npz), checkpoint (.ckpt) and lock (.lock).

    They are in the folder of a study, by default of the profile that the configuration belongs to. A run on other
    images than the data set's name stands for, those of `fingerprint`, belongs to no study.
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
        other_images = self.fingerprint if self.fingerprint != known else None
        self.study = "custom" if other_images else study or config.profile
        self.csv = root / self.study / "runs" / f"{run_name(config, self.study, other_images)}.csv"
        self.json, self.weights, self.checkpoint, self.lock = (
            self.csv.with_suffix(suffix) for suffix in (".json", ".npz", ".ckpt", ".lock")
        )
        self.folder = self.csv.parent

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the run's lock, so that no other process works on it; fails at once on an unwritable folder."""
        lock = FileLock(self.lock, blocking=False)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except Timeout:
            raise RecordLocked(f"another process is working on {self.csv}") from None
        except OSError as error:
            advice = "choose another results folder"
            raise RecordError(f"cannot write to {self.folder}: {error.strerror}; {advice}") from None
        try:
            yield
        finally:
            self.lock.unlink(missing_ok=True)  # while held: who has opened it meanwhile sees that it is gone
            lock.release()

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


def _text_array(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), dtype=np.uint8)


def _array_text(array: np.ndarray) -> str:
    return bytes(array).decode()
