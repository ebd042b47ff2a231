"""Which runs the paper's tables and figures need, what is there of them, and training what is missing."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from tqdm.auto import tqdm

from fedentropy_core.config import RunConfig, profile_config
from fedentropy_core.datasets import DatasetMissing, load_dataset
from fedentropy_core.engines import Engine, make_engine
from fedentropy_core.records import RecordLocked, RunFiles, load_record
from fedentropy_core.runner import OutOfTime, run

# Table 1 and Figure 2; with the second row Table 3 and Figures 3a and 6; the third is Figure 3b and the authors' rule.
TABLE_1 = ("fedavg", "fedavg+entropy", "fedprox", "scaffold", "moon")
SYNERGY = ("fedprox+entropy", "scaffold+entropy", "moon+entropy")
ABLATION = ("fedavg+entropy-no-pools", "fedavg+entropy-pools-only", "fedavg+entropy-value")

CASES = (1, 2, 3)
# The order of training, most valuable first.
BATCHES = (
    ("cifar10", (0,)),
    ("cifar100", (0,)),
    ("cifar10", (1, 2)),
    ("cifar100", (1, 2)),
    ("cinic10", (0, 1, 2)),
)


@dataclass(frozen=True)
class Choice:
    """A part of the study; an empty field means all."""

    datasets: Sequence[str] = ()
    methods: Sequence[str] = ()
    cases: Sequence[int] = ()
    seeds: Sequence[int] = ()

    def __post_init__(self) -> None:
        everything = study_runs()
        for name, values in (
            ("dataset", {config.dataset for config in everything}),
            ("method", {config.label for config in everything}),
            ("case", {config.case for config in everything}),
            ("seed", {config.seed for config in everything}),
        ):
            for value in getattr(self, f"{name}s"):
                if value not in values:
                    raise ValueError(f"the study has no {name} {value!r}; it has {', '.join(map(str, sorted(values)))}")

    def __contains__(self, config: RunConfig) -> bool:
        return (
            (not self.datasets or config.dataset in self.datasets)
            and (not self.methods or config.label in self.methods)
            and (not self.cases or config.case in self.cases)
            and (not self.seeds or config.seed in self.seeds)
        )


def study_runs() -> list[RunConfig]:
    """All runs of the paper profile, most valuable first."""
    return [
        profile_config("paper", dataset=dataset, case=case, seed=seed, **_fields(label))
        for dataset, seeds in BATCHES
        for seed in seeds
        for label, cases in _methods(dataset)
        for case in cases
    ]


def overview(runs: Iterable[RunConfig], results: Path | None = None) -> pd.DataFrame:
    """A row a run: what it is, whether it is recorded, begun or missing, and its wall time."""
    rows = []
    for config in runs:
        files = RunFiles(config, results)
        state = "recorded" if files.csv.exists() else "begun" if files.checkpoint.exists() else "missing"
        seconds = load_record(files.csv).about["provenance"]["wall_seconds"] if state == "recorded" else None
        rows.append((config.dataset, config.case, config.label, config.seed, config.rounds, state, seconds))
    return pd.DataFrame(rows, columns=["dataset", "case", "method", "seed", "rounds", "state", "seconds"])


def train(
    runs: Sequence[RunConfig], seconds: float, engine: str = "auto", results: Path | None = None, progress: bool = True
) -> None:
    """Trains what is missing, one run at a time on all cores, and stops with a checkpoint when the time is up.

    A run that another process is working on is left to it; a data set that is not there is skipped with a notice.
    """
    deadline = time.monotonic() + seconds
    missing = [config for config in runs if not RunFiles(config, results).csv.exists()]
    engines: dict[str, Engine | None] = {}
    total = sum(config.rounds for config in missing)
    with tqdm(total=total, unit="round", smoothing=0.02, disable=not progress) as bar:
        for config in missing:
            if config.dataset not in engines:
                engines[config.dataset] = _engine_or_notice(config.dataset, engine, bar)
            worker = engines[config.dataset]
            if worker is None:
                bar.total -= config.rounds
                continue
            try:
                record = run(config, worker, progress=bar, results=results, deadline=deadline)
                bar.write(f"{record.path}: last ten {record.final_accuracy:.2%}, best {record.best_accuracy:.2%}")
            except RecordLocked as error:
                bar.total -= config.rounds
                bar.write(f"{error}: left to it")
            except OutOfTime as stop:
                bar.write(f"time is up; {stop}; the same command goes on from there")
                return


def _engine_or_notice(dataset: str, engine: str, bar: tqdm) -> Engine | None:
    try:
        return make_engine(engine, load_dataset(dataset))
    except DatasetMissing as error:
        bar.write(f"skipped: {error}")
        return None


def _methods(dataset: str) -> list[tuple[str, tuple[int, ...]]]:
    """Labels and cases that a data set needs; the ablation is on CIFAR-10 case 1 only."""
    methods = [(label, CASES) for label in TABLE_1 + SYNERGY]
    return methods + [(label, (1,)) for label in ABLATION] if dataset == "cifar10" else methods


def _fields(label: str) -> dict:
    """The RunConfig fields that a label stands for."""
    method, _, variant = label.partition("+entropy")
    extra = {
        "": {},
        "-no-pools": {"selection": "uniform"},
        "-pools-only": {"pools_only": True},
        "-value": {"selection": "value"},
    }[variant]
    return {"method": method, "entropy": "+" in label, **extra}
