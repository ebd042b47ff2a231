"""A study: a named list of runs; what is there of them, and training what is missing."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pandas as pd
from tqdm.auto import tqdm

from fedentropy_core.config import RunConfig
from fedentropy_core.datasets import DatasetMissing, load_dataset
from fedentropy_core.engines import Engine, make_engine
from fedentropy_core.engines.base import usable_cores
from fedentropy_core.records import OtherEngine, RecordLocked, RunFiles, RunRecord, load_record
from fedentropy_core.runner import OutOfTime, outcome, run, title
from fedentropy_core.stacked import run_stacked, seed_stacks

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


class EnginePool:
    """One engine a data set, made when it is first needed."""

    def __init__(self, name: str = "auto", device: str | None = None):
        self.name, self.device = name, device
        self.engines: dict[str, Engine] = {}

    def of(self, dataset: str) -> Engine:
        if dataset not in self.engines:
            self.engines[dataset] = make_engine(self.name, load_dataset(dataset), device=self.device)
        return self.engines[dataset]


def train(
    runs: Sequence[RunConfig],
    seconds: float,
    engines: EnginePool,
    results: Path | None = None,
    progress: bool = True,
    stack_seeds: bool = False,
    study: Study | None = None,
) -> None:
    """Trains what is missing, one run at a time on all cores, and stops with a checkpoint when the time is up.

    With `stack_seeds` the seeds of a method are trained side by side, which fills a GPU better. A run that cannot be
    trained (another process works on it, another engine began it, its data set is not there) is skipped with a notice.
    """
    deadline = time.monotonic() + seconds
    missing = [config for config in runs if not files_of(config, results, study).csv.exists()]
    stacks = seed_stacks(missing) if stack_seeds else [[config] for config in missing]
    with tqdm(total=sum(c.rounds for c in missing), unit="round", smoothing=0.02, disable=not progress) as bar:
        for stack in stacks:
            try:
                for record in _train_stack(stack, engines, results, bar, deadline, study):
                    bar.total -= record.config.rounds - len(record.rounds)
                    bar.write(outcome(record))
            except (RecordLocked, OtherEngine, DatasetMissing) as error:
                if len(stack) > 1:
                    stacks += [[config] for config in stack]  # the others need not wait for the one that cannot
                    continue
                bar.total -= stack[0].rounds
                bar.write(f"skipped {title(stack[0])}: {error}")
            except OutOfTime as stop:
                bar.write(f"time is up; {stop}; the same command goes on from there")
                return


def _train_stack(
    stack: list[RunConfig],
    engines: EnginePool,
    results: Path | None,
    bar: tqdm,
    deadline: float,
    study: Study | None,
) -> list[RunRecord]:
    engine, name = engines.of(stack[0].dataset), study.name if study else None

    def keeps(config: RunConfig) -> bool:
        return study is not None and study.keeps_weights(config)

    if len(stack) > 1:
        return run_stacked(stack, engine, results, bar, deadline, keeps, name)
    kept = keeps(stack[0])
    return [run(stack[0], engine, progress=bar, results=results, deadline=deadline, keep_weights=kept, study=name)]
