"""A study: a named list of runs; what is there of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pandas as pd

from fedentropy_core.config import RunConfig
from fedentropy_core.machine import usable_cores
from fedentropy_core.runs.files import RunFiles
from fedentropy_core.runs.record import RunRecord, load_record

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
    """A row a run: what it is, whether it is recorded, begun or missing, and how many core-seconds a round took."""
    rows = []
    for config in runs:
        files = files_of(config, results, study)
        state = "recorded" if files.csv.exists() else "begun" if files.checkpoint.exists() else "missing"
        pace = _core_seconds_a_round(load_record(files.csv)) if state == "recorded" else None
        rows.append((config.dataset, config.case, config.label, config.seed, config.rounds, state, pace))
    return pd.DataFrame(rows, columns=["dataset", "case", "method", "seed", "rounds", "state", "pace"])


def estimate(rounds: int, paces: pd.Series) -> str:
    """How long these rounds take on this machine's cores if they are as fast as the recorded runs'."""
    if paces.isna().all():
        return "no estimate yet"
    cores, pace = usable_cores(), paces.mean()
    hours = rounds * pace / cores / 3600
    return f"about {hours:.1f} h on {cores} cores, at the {pace:.1f} core-seconds a round of the records"


def _core_seconds_a_round(record: RunRecord) -> float | None:
    """None for a run that diverged in its first round."""
    made_on = record.about["provenance"]
    return made_on["wall_seconds"] * made_on["cores"] / len(record.rounds) if len(record.rounds) else None
