"""Running one configuration, or many."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedentropy_core.config import RunConfig
from fedentropy_core.engines import fastest
from fedentropy_core.interrupts import Stop, Stopped
from fedentropy_core.machine import usable_cores
from fedentropy_core.runs.display import Display
from fedentropy_core.runs.files import RunFiles
from fedentropy_core.runs.journal import title
from fedentropy_core.runs.listing import read_record
from fedentropy_core.runs.record import RecordError, RunRecord, load_record
from fedentropy_core.runs.study import Study, files_of
from fedentropy_core.runs.training import Crew, Event, Left, Order, Paused, Played, Workshop, seed_stacks
from fedentropy_core.work import Dataset, Engine, Round

if TYPE_CHECKING:
    from fedentropy_core.runs.cluster import ClusterCrew

CORES_A_RUN = 5  # that a run of ten devices a round keeps busy, but for its pauses


class OutOfTime(Exception):
    """A run met its deadline; its checkpoint is saved."""


def run(
    config: RunConfig,
    engine: str | Engine = "auto",
    results: Path | str | None = None,
    resume: bool = True,
    progress: bool = True,
    on_round: Callable[[Round], None] | None = None,
    dataset: Dataset | None = None,
    keep_weights: bool = False,
    study: str | None = None,
    seconds: float | None = None,
) -> RunRecord:
    """Trains, or loads what was trained before, and returns the record.

    A finished record is returned as it is; an interrupted run goes on from its checkpoint, and its record is byte
    for byte that of an undisturbed run. `resume=False` starts from round 0, and refuses to replace a finished
    record. A run that diverges ends there, with a warning, and its record says so. After `seconds` it saves a
    checkpoint and raises OutOfTime; Ctrl-C and the like save one and raise Stopped. `on_round` is called with each
    round's row. A `dataset` other than the one that config.dataset names makes another run. `keep_weights` keeps the
    final global model beside the record. `study`: the folder in `results` to write to.
    """
    files = RunFiles(config, results, study, dataset and dataset.fingerprint)
    if not files.csv.exists():
        order = Order(files, dataset, resume, keep_weights)
        with Display([order], progress, notices=False) as display:

            def show(event: Event) -> None:
                if isinstance(event, Left):
                    raise event.why
                display.show(event)
                if isinstance(event, Played) and on_round is not None:
                    on_round(event.row)

            paused = conduct(Crew([[order]], Workshop(engine), 1, Stop(deadline(seconds))), show)
        if paused:
            raise OutOfTime(where(paused))
    elif not resume:
        raise RecordError(f"{files.csv} exists: delete it, or choose another results folder")
    return finished(files, keep_weights)


@dataclass(frozen=True)
class Means:
    """With what runs are trained: on this machine, `jobs` of them side by side, or each with a share of a Ray cluster.

    `jobs` None: as many as fill the machine. With `stack_seeds` the seeds of a method are trained in lockstep, which
    fills a GPU better. `ray`: a cluster's address; "auto" is the one this machine belongs to.
    """

    engine: str = "auto"
    device: str | None = None
    jobs: int | None = None
    stack_seeds: bool = False
    ray: str | None = None
    cpus: int = 1
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise ValueError(f"jobs must be at least 1; got {self.jobs}")
        if self.ray and (self.device or self.stack_seeds or self.jobs):
            raise ValueError(
                "device, stack_seeds and jobs are not for a cluster: cpus and gpus give each run a share of it"
            )
        if not self.ray and (self.cpus, self.gpus) != (1, 0):
            raise ValueError("cpus and gpus are a run's share of a cluster: give ray as well")

    def crew(self, orders: Sequence[Order], stop: Stop) -> "Crew | ClusterCrew":
        if self.ray:
            from fedentropy_core.runs import cluster  # Ray, which it loads, is in no core

            return cluster.ClusterCrew(orders, self.ray, cluster.Share(self.cpus, self.gpus, self.engine), stop)
        stacks = seed_stacks(orders) if self.stack_seeds else [[order] for order in orders]
        return Crew(stacks, Workshop(self.engine, self.device), self.jobs or self._side_by_side(), stop)

    def _side_by_side(self) -> int:
        return side_by_side(usable_cores()) if fastest(self.engine, self.device) == "native" else 1


def side_by_side(cores: int) -> int:
    """How many runs fill them; a run alone leaves cores idle at the end of each round, and one more fills them."""
    return 1 + -(-cores // CORES_A_RUN)


def run_all(
    configs: Sequence[RunConfig],
    means: Means | None = None,
    results: Path | str | None = None,
    progress: bool = True,
    study: Study | None = None,
    seconds: float | None = None,
) -> list[RunRecord]:
    """Trains what is missing of many runs, the first ones first, and returns the records that there are then.

    A run that cannot be trained (another process works on it, another engine began it, its data set is not there, its
    record is damaged) is skipped with a notice. After `seconds` all runs under way save a checkpoint; Ctrl-C and the
    like save one and raise Stopped.
    """
    everything = [files_of(config, results, study) for config in dict.fromkeys(configs)]
    orders = [
        Order(files, keep_weights=study is not None and study.keeps_weights(files.config))
        for files in everything
        if not files.csv.exists()
    ]
    with Display(orders, progress) as display:
        records = {files: _finished_before(files, display) for files in everything if files.csv.exists()}
        paused = conduct((means or Means()).crew(orders, Stop(deadline(seconds))), display.show)
        if paused:
            display.write(f"time is up; {where(paused)}; the same command goes on from there")
    records |= {files: read_record(files.csv) for files in everything if files not in records}
    return [records[files] for files in everything if records[files] is not None]


def _finished_before(files: RunFiles, display: Display) -> RunRecord | None:
    """What is there is never written over: also a bad record may be worth repairing."""
    try:
        return load_record(files.csv)
    except RecordError as why:
        display.write(f"skipped {title(files.config)}: {why}. Repair it, or delete it to have the run trained again")
        return None


def conduct(crew: "Crew | ClusterCrew", show: Callable[[Event], None]) -> list[Paused]:
    """Has orders trained and shows what becomes of them; the runs that paused because time was up."""
    try:
        with crew:
            while (event := crew.event()) is not None:
                show(event)
    except KeyboardInterrupt as why:
        message = f"{where(crew.paused) or 'stopped'}; the same command goes on"
        raise Stopped(message, *([why.exit_code] if isinstance(why, Stopped) else [])) from None
    return crew.paused


def deadline(seconds: float | None) -> float | None:
    return None if seconds is None else time.monotonic() + seconds


def where(paused: Sequence[Paused]) -> str:
    """Where runs stopped."""
    return ", ".join(f"{title(p.order.config)}: stopped after round {p.rounds}" for p in paused)


def finished(files: RunFiles, keep_weights: bool = False) -> RunRecord:
    """The record of a run that is done."""
    record = load_record(files.csv)
    if files.fingerprint not in (None, record.about["data_fingerprint"]):
        raise RecordError(f"{files.csv} was made from other images; delete it, or choose another results folder")
    if keep_weights and not files.weights.exists() and len(record.rounds):
        raise RecordError(f"{files.csv} was finished without keeping weights; train it into another results folder")
    files.checkpoint.unlink(missing_ok=True)  # a process that was killed at the very end left it
    return record
