"""A study: a named list of runs; what is there of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pandas as pd

from fedentropy_core.config import RunConfig
from fedentropy_core.machine import usable_cores
from fedentropy_core.runs.files import RunFiles
from fedentropy_core.runs.listing import read_record, record_paths
from fedentropy_core.runs.record import RunRecord

Run = TypeVar("Run")


@dataclass(frozen=True)
class Study:
    """A named list of runs, most valuable first; its records are in results/<name>."""

    name: str
    title: str
    runs: tuple[RunConfig, ...]
    with_weights: tuple[RunConfig, ...] = ()  # those whose final global model is kept

    def keeps_weights(self, config: RunConfig) -> bool:
        return config in self.with_weights


def files_of(config: RunConfig, results: Path | None, study: Study | None) -> RunFiles:
    """A run's files in its study's folder; without a study in that of its profile."""
    return RunFiles(config, results, study.name if study else None)


def study_in(path: Path) -> Study:
    """The study of a Python file: its list `runs` of configurations, named as the file is."""
    if not path.exists():
        raise ValueError(f"study {path}: no such file")
    found: dict[str, object] = {}
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), found)
    except Exception as error:
        raise ValueError(f"study {path} cannot be read: {type(error).__name__}: {error}") from None
    runs = found.get("runs")
    if not (isinstance(runs, (list, tuple)) and runs and all(isinstance(run, RunConfig) for run in runs)):
        raise ValueError(f"study {path} must have a list `runs` of RunConfig, at least one")
    title = str(found.get("__doc__") or "a sweep").strip().splitlines()[0]
    return Study(path.stem, title, tuple(dict.fromkeys(runs)))


def choose(
    runs: Sequence[Run],
    datasets: Sequence[str] = (),
    methods: Sequence[str] = (),
    cases: Sequence[int] = (),
    seeds: Sequence[int] = (),
) -> list[Run]:
    """A part of the runs, or of whatever else has a dataset, a label, a case and a seed; an empty choice means all."""
    chosen = list(runs)
    for name, field, wanted in (
        ("dataset", "dataset", datasets),
        ("method", "label", methods),
        ("case", "case", cases),
        ("seed", "seed", seeds),
    ):
        known = sorted({getattr(config, field) for config in runs}, key=str)
        for value in wanted:
            if value not in known:
                raise ValueError(f"no run has {name} {value!r}; there are {', '.join(map(str, known))}")
        chosen = [config for config in chosen if not wanted or getattr(config, field) in wanted]
    if not chosen:
        raise ValueError("no run has all of these: leave some of the choices out")
    return chosen


def overview(runs: Iterable[RunConfig], results: Path | None = None, study: Study | None = None) -> pd.DataFrame:
    """A row a run: what it is, its state, the rounds that are left to train, and how many core-seconds a round took.

    A run is recorded, begun, missing, or bad: of a record that cannot be trusted. Such a run is not trained. Each bad
    record, and each stray beside them, is named in a warning.
    """
    all_files = [files_of(config, results, study) for config in runs]
    for folder in dict.fromkeys(files.study for files in all_files):
        record_paths(folder, results)  # names the strays
    whats = [(c.dataset, c.case, c.label, c.seed) for c in (files.config for files in all_files)]
    rows = [(*what, *_state(files)) for what, files in zip(whats, all_files, strict=True)]
    return pd.DataFrame(rows, columns=["dataset", "case", "method", "seed", "state", "left", "pace"])


def estimate(rounds: int, paces: pd.Series) -> str:
    """How long these rounds take on this machine's cores if they are as fast as the recorded runs'."""
    if paces.isna().all():
        return "no estimate yet"
    cores, pace = usable_cores(), paces.mean()
    hours = rounds * pace / cores / 3600
    return f"about {hours:.1f} h on {cores} cores, at the {pace:.1f} core-seconds a round of the records"


def _state(files: RunFiles) -> tuple[str, int, float | None]:
    """What is there of a run, its rounds if they are to be trained, and its pace if it is recorded."""
    if files.csv.exists():
        record = read_record(files.csv)
        return ("bad", 0, None) if record is None else ("recorded", 0, _core_seconds_a_round(record))
    return "begun" if files.checkpoint.exists() else "missing", files.config.rounds, None


def _core_seconds_a_round(record: RunRecord) -> float | None:
    """None for a run that diverged in its first round."""
    made_on = record.about["provenance"]
    return made_on["wall_seconds"] * made_on["cores"] / len(record.rounds) if len(record.rounds) else None
