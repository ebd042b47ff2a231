"""Sweeps on a Ray cluster: many runs at once, each in slices, everything that matters on the head.

A slice is a task: it takes a run's checkpoint, trains for a while on whatever worker is free, and brings the new
checkpoint or the finished record back to the head, which stores it and submits the next slice. A worker that dies
costs one slice: the head submits it again from the checkpoint it has.
"""

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import ray
from tqdm.auto import tqdm

from fedentropy_core.config import RunConfig
from fedentropy_core.datasets import Dataset, DatasetMissing, load_dataset
from fedentropy_core.engines import make_engine
from fedentropy_core.engines.native import BuildError
from fedentropy_core.paths import atomic_write
from fedentropy_core.records import OtherEngine, RecordError, RecordLocked, RunFiles, load_record
from fedentropy_core.runner import OutOfTime, outcome, title, train_files
from fedentropy_core.study import Study, files_of

SLICE_SECONDS = 60.0
GRACE = 3  # slices that one under way at the deadline may take: a worker that hangs must not hold up the end
MOST_LOSSES = 20  # of one run; a run that kills every worker must not go round for ever


@dataclass(frozen=True)
class Share:
    """What a run asks of the cluster; its threads are its CPUs."""

    cpus: int = 1
    gpus: float = 0.0
    engine: str = "auto"

    def __post_init__(self) -> None:
        if self.cpus < 1 or self.gpus < 0:
            raise ValueError(f"a run needs at least one CPU and zero GPUs; got cpus {self.cpus}, gpus {self.gpus}")


def train_slice(
    config: RunConfig, dataset: Dataset, files: dict[str, bytes], share: Share, seconds: float, keep_weights: bool
):
    """On a worker: goes on from `files` for some seconds; the files after that, by suffix, and the rounds done."""
    device = "cuda" if share.gpus else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        here = RunFiles(config, folder)
        here.folder.mkdir(parents=True)
        for suffix, content in files.items():
            (here.folder / f"{here.csv.stem}{suffix}").write_bytes(content)
        engine, deadline = make_engine(share.engine, dataset, share.cpus, device), time.monotonic() + seconds
        with suppress(OutOfTime), here.locked():
            train_files(here, dataset, engine, progress=False, deadline=deadline, keep_weights=keep_weights)
        made = {
            path.name.removeprefix(here.csv.stem): path.read_bytes()
            for path in here.folder.iterdir()
            if path != here.lock
        }
        return made, _rounds_done(here)


def train_on_cluster(
    runs: Sequence[RunConfig],
    address: str,
    share: Share,
    results: Path | None = None,
    seconds: float = float("inf"),
    progress: bool = True,
    slice_seconds: float = SLICE_SECONDS,
    study: Study | None = None,
) -> None:
    """Trains what is missing on the cluster at `address` ("auto": the one this machine belongs to)."""
    ray.init(address=address, ignore_reinit_error=True, log_to_driver=False)
    with ExitStack() as locks:
        missing = _claim(runs, results, study, locks)
        if _room(share) < 1:
            has = [f"{ray.cluster_resources().get(kind, 0):g} {kind}s" for kind in ("CPU", "GPU")]
            asked = f"{share.cpus} CPUs and {share.gpus:g} GPUs"
            raise ValueError(f"the cluster has {' and '.join(has)}, too few for a run that asks for {asked}")
        Sweep(missing, share, results, slice_seconds, progress, study).until(time.monotonic() + seconds)


class Sweep:
    """The head's view: which slice of which run is where."""

    def __init__(
        self,
        missing: Sequence[RunConfig],
        share: Share,
        results: Path | None,
        slice_seconds: float,
        progress: bool,
        study: Study | None,
    ):
        self.share, self.results, self.slice_seconds, self.study = share, results, slice_seconds, study
        # Retries are ours: Ray would start from the old checkpoint without telling the display.
        self.task = ray.remote(num_cpus=share.cpus, num_gpus=share.gpus, max_retries=0)(train_slice)
        self.datasets: dict[str, ray.ObjectRef] = {}
        self.waiting, self.flying = list(missing), {}
        self.losses: dict[str, int] = {}
        self.done = {config.key: _rounds_done(files_of(config, results, study)) for config in missing}
        total = sum(config.rounds for config in missing)
        self.bar = tqdm(
            total=total, initial=sum(self.done.values()), unit="round", desc="cluster", disable=not progress
        )

    def until(self, deadline: float) -> None:
        """Keeps as many slices flying as the cluster has room for; stops submitting at the deadline."""
        with self.bar:
            while self.waiting or self.flying:
                while self.waiting and len(self.flying) < _room(self.share) and time.monotonic() < deadline:
                    self._submit(self.waiting.pop(0))
                if time.monotonic() >= (deadline + GRACE * self.slice_seconds if self.flying else deadline):
                    self.bar.write("time is up; the same command goes on from the checkpoints")
                    for reference in self.flying:
                        ray.cancel(reference, force=True)
                    return
                for reference in self._landed():
                    self._land(self.flying.pop(reference), reference)
                self.bar.set_postfix_str(f"{len(self.flying)} runs under way, {len(self.waiting)} waiting")

    def _landed(self) -> list[ray.ObjectRef]:
        """Waits a second for a slice, or, while no worker is left, for workers."""
        if not self.flying:
            time.sleep(1.0)
            return []
        return ray.wait(list(self.flying), timeout=1.0)[0]

    def _submit(self, config: RunConfig) -> None:
        try:
            if config.dataset not in self.datasets:
                self.datasets[config.dataset] = ray.put(load_dataset(config.dataset))
        except DatasetMissing as error:
            self._skip(config, error)
            return
        files = files_of(config, self.results, self.study)
        stored = {files.checkpoint.suffix: files.checkpoint.read_bytes()} if files.checkpoint.exists() else {}
        keep = self.study is not None and self.study.keeps_weights(config)
        dataset = self.datasets[config.dataset]
        reference = self.task.remote(config, dataset, stored, self.share, self.slice_seconds, keep)
        self.flying[reference] = config

    def _land(self, config: RunConfig, reference: ray.ObjectRef) -> None:
        try:
            made, rounds = ray.get(reference)
        except (
            ray.exceptions.WorkerCrashedError,
            ray.exceptions.NodeDiedError,
            ray.exceptions.ObjectLostError,
            ray.exceptions.OutOfMemoryError,
        ) as error:
            self._lost(config, error)
            return
        except (OtherEngine, ValueError, MemoryError, BuildError) as error:
            self._skip(config, error)
            return
        except (RecordError, OSError) as error:  # the worker's disk
            self._lost(config, error)
            return
        files = files_of(config, self.results, self.study)
        _store(files, made)
        self.bar.update(rounds - self.done[config.key])
        self.done[config.key] = rounds
        if files.csv.exists():
            record = load_record(files.csv)
            self.bar.total -= config.rounds - rounds
            self.bar.write(outcome(record))
        else:
            self.waiting.insert(0, config)

    def _skip(self, config: RunConfig, why: Exception | str) -> None:
        self.bar.write(f"skipped {title(config)}: {why}")
        self.bar.total -= config.rounds

    def _lost(self, config: RunConfig, error: Exception) -> None:
        count = self.losses[config.key] = self.losses.get(config.key, 0) + 1
        name = title(config)
        if count > MOST_LOSSES:
            self._skip(config, f"its worker was lost {count} times ({type(error).__name__})")
            return
        where = f"goes on elsewhere from round {self.done[config.key]}"
        self.bar.write(f"{name}: worker lost ({type(error).__name__}), {where}")
        self.waiting.insert(0, config)


def _room(share: Share) -> int:
    """How many slices fit on the cluster as it is now."""
    cluster = ray.cluster_resources()
    by_cpu = cluster.get("CPU", 0) // share.cpus
    by_gpu = cluster.get("GPU", 0) // share.gpus if share.gpus else by_cpu
    return int(min(by_cpu, by_gpu))


def _claim(runs: Sequence[RunConfig], results: Path | None, study: Study | None, locks: ExitStack) -> list[RunConfig]:
    """The runs without a record that no other process works on, locked."""
    missing = []
    for config in runs:
        files = files_of(config, results, study)
        if not files.csv.exists():
            try:
                locks.enter_context(files.locked())
                missing.append(config)
            except RecordLocked as error:
                print(f"skipped: {error}")
    return missing


def _store(files: RunFiles, made: dict[str, bytes]) -> None:
    """The CSV last, as in a run on this machine: a CSV in its place means a complete record."""
    for suffix in sorted(made, key=lambda suffix: suffix == files.csv.suffix):
        with atomic_write(files.folder / f"{files.csv.stem}{suffix}") as file:
            file.write(made[suffix])
    if files.csv.suffix in made:
        files.checkpoint.unlink(missing_ok=True)


def _rounds_done(files: RunFiles) -> int:
    if files.csv.exists():
        return len(load_record(files.csv).rounds)
    checkpoint = files.load_checkpoint()
    return len(checkpoint[1]) if checkpoint else 0
