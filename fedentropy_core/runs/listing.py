"""The records of a study. One that cannot be trusted, and a file that is none of a run's, is named and left out."""

import re
import warnings
from pathlib import Path

from fedentropy_core.files import results_root
from fedentropy_core.runs.names import STEM, named
from fedentropy_core.runs.record import RecordError, RunRecord, load_record


class Ignored(UserWarning):
    """A file among the records is left out; the message names it and says why."""


def load_records(study: str = "paper", results: Path | str | None = None) -> list[RunRecord]:
    """A study's finished runs in the order of their paths; each bad one is named in a warning and left out."""
    records = map(read_record, record_paths(study, results))
    return [record for record in records if record is not None]


def read_record(csv: Path) -> RunRecord | None:
    """The record if it is there; a bad one is named in a warning."""
    if not csv.exists():
        return None
    try:
        return load_record(csv)
    except RecordError as why:
        ignore(str(why))
        return None


def record_paths(study: str = "paper", results: Path | str | None = None) -> list[Path]:
    """The CSV files of a study's finished runs, good or bad; each stray among them is named in a warning."""
    folder = _root(results) / study / "runs"
    there = sorted(path for path in folder.rglob("*") if not path.is_dir() or named(path))
    for path in there:
        why = _why_stray(path, folder)
        if why:
            ignore(f"{path} {why}")
    return [path for path in there if _depth(path, folder) == DEPTH and named(path)]


def studies_there(results: Path | str | None = None) -> list[str]:
    """The folders of results that hold runs."""
    return sorted(path.parent.name for path in _root(results).glob("*/runs") if path.is_dir())


def ignore(text: str) -> None:
    """Says what is left out; in a notebook once, as Python shows the same warning from the same place once."""
    warnings.warn(text, Ignored, stacklevel=2)


DEPTH = 4  # data set, case, variant, file
_FILES = re.compile(rf"{STEM}\.(csv|json|npz|ckpt|ckpt\.bad|lock)|\.{STEM}\.\w+\.\d+\.tmp")


def _why_stray(path: Path, folder: Path) -> str | None:
    if _depth(path, folder) != DEPTH:
        return "is not where the files of a run are: <data set>/<case>/<variant>/"
    if not _FILES.fullmatch(path.name):
        return "is no file of a run"
    # A run that ends writes its CSV last, and removes its checkpoint and its lock after that.
    if path.suffix in (".json", ".npz") and not any(path.with_suffix(s).exists() for s in (".csv", ".ckpt", ".lock")):
        return f"is left of a record whose {path.stem}.csv is missing"
    return None


def _depth(path: Path, folder: Path) -> int:
    return len(path.relative_to(folder).parts)


def _root(results: Path | str | None) -> Path:
    return Path(results) if results is not None else results_root()
