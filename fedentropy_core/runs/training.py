"""The training loop, for a run, a stack of runs in lockstep, and several of these side by side."""

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace

from fedentropy_core.config import RunConfig
from fedentropy_core.data.load import DatasetMissing, load_dataset
from fedentropy_core.engines import make_engine
from fedentropy_core.federation import Federation
from fedentropy_core.interrupts import Halted, Stop
from fedentropy_core.runs.files import RunFiles
from fedentropy_core.runs.journal import Journal
from fedentropy_core.runs.record import OtherEngine, RecordLocked
from fedentropy_core.work import Cohort, Dataset, Engine, Round


@dataclass(frozen=True)
class Order:
    """A run to be trained. `dataset`: the images, where they are not those that its configuration names."""

    files: RunFiles
    dataset: Dataset | None = None
    resume: bool = True
    keep_weights: bool = False

    @property
    def config(self) -> RunConfig:
        return self.files.config


# What becomes of an order. A run begins, plays rounds, and ends with its record, or pauses with a checkpoint; or it is
# left to others.
@dataclass(frozen=True)
class Begun:
    order: Order
    rounds: int  # of its checkpoint


@dataclass(frozen=True)
class Played:
    order: Order
    rounds: int
    row: Round | None = None  # the last one; None from a cluster, which tells of many rounds at once


@dataclass(frozen=True)
class Noted:
    order: Order
    text: str


@dataclass(frozen=True)
class Ended:
    order: Order


@dataclass(frozen=True)
class Paused:
    order: Order
    rounds: int


@dataclass(frozen=True)
class Left:
    order: Order
    why: Exception


Event = Begun | Played | Noted | Ended | Paused | Left
Tell = Callable[[Event], None]


class Workshop:
    """Data sets and engines, each made once, when it is first needed."""

    def __init__(self, engine: str | Engine = "auto", device: str | None = None, threads: int | None = None):
        self._engine, self._device, self._threads = engine, device, threads
        self._datasets: dict[str, Dataset] = {}
        self._engines: dict[str, Engine] = {}
        self._lock = threading.Lock()

    def federation(self, order: Order) -> Federation:
        with self._lock:
            dataset = order.dataset or self._dataset(order.config.dataset)
            engine = self._engine_for(dataset)
        return Federation(order.config, dataset, engine)

    def _dataset(self, name: str) -> Dataset:
        if name not in self._datasets:
            self._datasets[name] = load_dataset(name)
        return self._datasets[name]

    def _engine_for(self, dataset: Dataset) -> Engine:
        if not isinstance(self._engine, str):
            return self._engine
        if dataset.fingerprint not in self._engines:
            self._engines[dataset.fingerprint] = make_engine(self._engine, dataset, self._threads, self._device)
        return self._engines[dataset.fingerprint]


def seed_stacks(orders: Sequence[Order]) -> list[list[Order]]:
    """The orders in groups that differ in nothing but the seed; groups stand in the order of their first run."""
    stacks: dict[RunConfig, list[Order]] = {}
    for order in orders:
        stacks.setdefault(replace(order.config, seed=0), []).append(order)
    return list(stacks.values())


class Crew:
    """Threads that train stacks, each one after the other, `jobs` of them side by side.

    `event` tells what becomes of the orders. Leaving the context with an error asks all to stop, and waits until every
    run has paused. An error that is not one run's alone stops the others too, and is raised at the end.
    """

    def __init__(self, stacks: Sequence[Sequence[Order]], workshop: Workshop, jobs: int, stop: Stop):
        self.stacks, self.workshop, self.stop = list(stacks), workshop, stop
        self.paused: list[Paused] = []
        self._at_work, self._busy, self._begun, self._error = max(1, min(jobs, len(self.stacks))), 0, False, None
        self._workers = [threading.Thread(target=self._work) for _ in range(self._at_work)]
        self._events: queue.SimpleQueue[Event | BaseException | None] = queue.SimpleQueue()
        self._lock = threading.Lock()

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if kind is not None:
            self.stop.ask()
            for worker in self._workers:
                if worker.ident is not None:
                    worker.join()
            while not self._events.empty():
                self._hear()
        elif self._error is not None:
            raise self._error

    def event(self) -> Event | None:
        """The next one; None once all is done, or has paused."""
        for worker in self._workers:
            if worker.ident is None:  # begun in the context, whose end waits for it
                worker.start()
        while self._at_work:
            event = self._hear()
            if event is not None:
                return event
        return None

    def _hear(self) -> Event | None:
        heard = self._events.get()
        if heard is None:
            self._at_work -= 1
        elif isinstance(heard, BaseException):
            self._error = self._error or heard
            return None
        elif isinstance(heard, Paused):
            self.paused.append(heard)
        return heard

    def _work(self) -> None:
        try:
            while (stack := self._next()) is not None:
                self._train(stack)
                with self._lock:
                    self._busy -= 1
        except BaseException as error:
            self.stop.ask()
            self._events.put(error)
        finally:
            self._events.put(None)

    def _next(self) -> Sequence[Order] | None:
        """Also after the deadline one stack is begun: whoever calls again and again gets on."""
        with self._lock:
            if not self.stacks or self.stop.asked or (self.stop.late and self._begun):
                return None
            self._begun = True
            self._busy += 1
            return self.stacks.pop(0)

    def _train(self, stack: Sequence[Order]) -> None:
        try:
            train_stack(stack, self.workshop, self.stop, self._events.put, lambda: 1 / self._busy)
        except (RecordLocked, OtherEngine, DatasetMissing) as why:
            if len(stack) > 1:  # the others need not wait for the one that cannot
                with self._lock:
                    self.stacks += [[order] for order in stack]
            else:
                self._events.put(Left(stack[0], why))


def train_stack(
    orders: Sequence[Order], workshop: Workshop, stop: Stop, tell: Tell, share: Callable[[], float] = lambda: 1.0
) -> None:
    """Trains runs on one data set with one local rule in lockstep: a round of each, their devices as one stack.

    Each goes on from its own checkpoint, whatever its round, and leaves the stack when it is done or diverges. `share`
    is the part of the machine's time that the stack is charged with.
    """
    with ExitStack() as locks:
        for order in orders:
            locks.enter_context(order.files.locked())
        journals = {
            order: Journal(order.files, workshop.federation(order), order.resume, order.keep_weights)
            for order in orders
            if not order.files.csv.exists()
        }
        for order in orders:
            tell(Begun(order, len(journals[order].lines)) if order in journals else Ended(order))
        _play(journals, stop, tell, share)


def _play(journals: dict[Order, Journal], stop: Stop, tell: Tell, share: Callable[[], float]) -> None:
    """A new global model is evaluated while the next round trains, except before a checkpoint and the end."""

    def take_down(order: Order) -> None:
        for row in running[order].take_down(share() / len(running)):
            tell(Played(order, row.round, row))

    with ThreadPoolExecutor(1) as beside:
        running = _record_complete(journals, tell)
        last = False
        while running and not last:
            cohorts = _train_cohorts(list(running.values()), stop)
            last = cohorts is None or stop.due
            for order, journal in running.items():
                take_down(order)
                if cohorts is not None:
                    journal.end_round(cohorts.pop(0), beside)
                due = last or journal.save_due
                if due or journal.complete:
                    take_down(order)
                if due:
                    journal.save()
            running = _record_complete(running, tell)
        for order, journal in running.items():
            tell(Paused(order, len(journal.lines)))


def _train_cohorts(journals: Sequence[Journal], stop: Stop) -> list[Cohort] | None:
    """A round of each; None if they were halted, and then no round was begun."""
    works = [journal.federation.begin_round() for journal in journals]
    try:
        with stop.flag() as flag:
            return journals[0].federation.engine.train_many(works, flag)
    except Halted:
        for journal in journals:
            journal.federation.abandon_round()
        return None


def _record_complete(journals: dict[Order, Journal], tell: Tell) -> dict[Order, Journal]:
    """Writes the records of those that have all rounds, as a checkpoint may from the start; the others."""
    for order, journal in journals.items():
        if journal.complete:
            journal.write_record()
            tell(Ended(order))
    return {order: journal for order, journal in journals.items() if not journal.complete}
