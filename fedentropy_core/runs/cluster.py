"""Sweeps on a Ray cluster: many runs at once, each in slices, everything that matters on the head.

A slice is a task: it takes a run's checkpoint, trains for a while on whatever worker is free, and brings the new
checkpoint or the finished record back to the head, which stores it and submits the next slice. A worker that dies
costs one slice: the head submits it again from the checkpoint it has.
"""

import tempfile
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from fedentropy_core.config import RunConfig
from fedentropy_core.data.load import DatasetMissing, load_dataset
from fedentropy_core.engines import BuildError
from fedentropy_core.extras import needs
from fedentropy_core.files import atomic_write
from fedentropy_core.interrupts import Stop
from fedentropy_core.runs.files import RunFiles
from fedentropy_core.runs.record import OtherEngine, RecordError, load_record
from fedentropy_core.runs.training import Begun, Ended, Event, Left, Noted, Order, Paused, Played, Workshop, train_stack
from fedentropy_core.work import Dataset

with needs("flower"):
    import ray

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

    def workshop(self) -> Workshop:
        return Workshop(self.engine, "cuda" if self.gpus else "cpu", self.cpus)


def train_slice(config: RunConfig, dataset: Dataset, files: dict[str, bytes], share: Share, seconds: float, keep: bool):
    """On a worker: goes on from `files` for some seconds; the files after that, by suffix, and the rounds done."""
    with tempfile.TemporaryDirectory() as folder:
        here = RunFiles(config, folder)
        here.folder.mkdir(parents=True)
        for suffix, content in files.items():
            (here.folder / f"{here.csv.stem}{suffix}").write_bytes(content)
        workshop, order = share.workshop(), Order(here, dataset, keep_weights=keep)
        train_stack([order], workshop, Stop(time.monotonic() + seconds), tell=lambda event: None)
        made = {
            path.name.removeprefix(here.csv.stem): path.read_bytes()
            for path in here.folder.iterdir()
            if path != here.lock
        }
        return made, _rounds_done(here)


class ClusterCrew:
    """The head's view: which slice of which run is where. It tells what a Crew of threads on this machine does."""

    def __init__(self, orders: Sequence[Order], address: str, share: Share, stop: Stop):
        self.orders, self.address, self.share, self.stop = orders, address, share, stop
        # Retries are ours: Ray would start from the old checkpoint without telling the display.
        self.task = ray.remote(num_cpus=share.cpus, num_gpus=share.gpus, max_retries=0)(train_slice)
        self.datasets: dict[str, ray.ObjectRef] = {}
        self.waiting: list[Order] = []
        self.flying: dict[ray.ObjectRef, Order] = {}
        self.losses: dict[Order, int] = {}
        self.rounds: dict[Order, int] = {}  # that the head has
        self.begun: set[Order] = set()
        self.events: deque[Event] = deque()
        self.paused: list[Paused] = []
        self.locks = ExitStack()

    def __enter__(self) -> "ClusterCrew":
        ray.init(address=self.address, ignore_reinit_error=True, log_to_driver=False)
        if _room(self.share) < 1:
            has = [f"{ray.cluster_resources().get(kind, 0):g} {kind}s" for kind in ("CPU", "GPU")]
            asked = f"{self.share.cpus} CPUs and {self.share.gpus:g} GPUs"
            raise ValueError(f"the cluster has {' and '.join(has)}, too few for a run that asks for {asked}")
        for order in self.orders:
            self._claim(order)
        return self

    def __exit__(self, *_: object) -> None:
        for reference in self.flying:
            ray.cancel(reference, force=True)
        begun = [order for order in (*self.flying.values(), *self.waiting) if order in self.begun]
        self.paused = [Paused(order, self.rounds[order]) for order in begun]
        self.locks.close()

    def event(self) -> Event | None:
        """Keeps as many slices flying as the cluster has room for; after the deadline it only waits for them."""
        while not self.events and (self.flying or (self.waiting and not self.stop.due)):
            while self.waiting and len(self.flying) < _room(self.share) and not self.stop.due:
                self._submit(self.waiting.pop(0))
            if self.stop.late and time.monotonic() >= self.stop.deadline + GRACE * SLICE_SECONDS:
                break
            for reference in self._landed():
                self._land(self.flying.pop(reference), reference)
        return self.events.popleft() if self.events else None

    def _claim(self, order: Order) -> None:
        try:
            self.locks.enter_context(order.files.locked())
            self.rounds[order] = _rounds_done(order.files)
        except RecordError as why:
            self.events.append(Left(order, why))
            return
        self.waiting.append(order)

    def _landed(self) -> list[ray.ObjectRef]:
        """Waits a second for a slice, or, while no worker is left, for workers."""
        if not self.flying:
            time.sleep(1.0)
            return []
        return ray.wait(list(self.flying), timeout=1.0)[0]

    def _submit(self, order: Order) -> None:
        config, files = order.config, order.files
        try:
            if config.dataset not in self.datasets:
                self.datasets[config.dataset] = ray.put(load_dataset(config.dataset))
        except DatasetMissing as why:
            self.events.append(Left(order, why))
            return
        stored = {files.checkpoint.suffix: files.checkpoint.read_bytes()} if files.checkpoint.exists() else {}
        dataset = self.datasets[config.dataset]
        reference = self.task.remote(config, dataset, stored, self.share, SLICE_SECONDS, order.keep_weights)
        self.flying[reference] = order
        if order not in self.begun:
            self.begun.add(order)
            self.events.append(Begun(order, self.rounds[order]))

    def _land(self, order: Order, reference: ray.ObjectRef) -> None:
        try:
            made, rounds = ray.get(reference)
        except (
            ray.exceptions.WorkerCrashedError,
            ray.exceptions.NodeDiedError,
            ray.exceptions.ObjectLostError,
            ray.exceptions.OutOfMemoryError,
        ) as error:
            self._lost(order, error)
            return
        except (OtherEngine, ValueError, MemoryError, BuildError) as why:
            self.events.append(Left(order, why))
            return
        except (RecordError, OSError) as error:  # the worker's disk
            self._lost(order, error)
            return
        _store(order.files, made)
        self.rounds[order] = rounds
        self.events.append(Played(order, rounds))
        if order.files.csv.exists():
            self.events.append(Ended(order))
        else:
            self.waiting.insert(0, order)

    def _lost(self, order: Order, error: Exception) -> None:
        count, kind = self.losses.get(order, 0) + 1, type(error).__name__
        self.losses[order] = count
        if count > MOST_LOSSES:
            self.events.append(Left(order, RecordError(f"its worker was lost {count} times ({kind})")))
            return
        where = f"goes on elsewhere from round {self.rounds[order]}"
        self.events.append(Noted(order, f"worker lost ({kind}), {where}"))
        self.waiting.insert(0, order)


def _room(share: Share) -> int:
    """How many slices fit on the cluster as it is now."""
    cluster = ray.cluster_resources()
    by_cpu = cluster.get("CPU", 0) // share.cpus
    by_gpu = cluster.get("GPU", 0) // share.gpus if share.gpus else by_cpu
    return int(min(by_cpu, by_gpu))


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
