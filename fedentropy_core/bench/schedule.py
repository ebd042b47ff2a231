"""What more cores would give: a schedule computed from what the parts of a round take on one thread, not measured.

Runs share a pool of threads, a core each, and their jobs wait in one queue, as in `fedentropy_core.runs.training`: a
run submits its devices' jobs; when all are done it judges and aggregates, submits the evaluation of the new model in
chunks, prepares the next round and submits that. Before it settles a round it waits for the evaluation of the one
before. Left out: that parts may last longer when all cores are busy, and that what the runs do themselves needs a core
and, being Python, happens one at a time.
"""

import statistics
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from typing import TypeVar

import numpy as np

from fedentropy_core.bench.files import about
from fedentropy_core.bench.rounds import synthetic_dataset
from fedentropy_core.config import RunConfig
from fedentropy_core.engines import make_engine
from fedentropy_core.engines.native import EVALUATION_CHUNK
from fedentropy_core.federation import Federation
from fedentropy_core.runs.train import side_by_side
from fedentropy_core.work import Cohort, Dataset, Work

JOINED = ("weights", "soft_labels", "steps", "losses")
T = TypeVar("T")
FILE = Path("results/schedule.json")
CORES = (2, 4, 8, 16, 64)
ROUNDS = 50  # of every run of a schedule, so that its beginning and end hardly count


@dataclass(frozen=True)
class Parts:
    """CPU seconds of a round on one thread: each device's training, each chunk of the evaluation, and what the run does
    itself after the devices (judge, aggregate) and before them (select, draw batches)."""

    devices: tuple[float, ...]
    chunks: tuple[float, ...]
    settle: float = 0.0
    prepare: float = 0.0


@dataclass(frozen=True)
class Schedule:
    seconds: float
    busy: float  # share of the cores' time in which they work
    rounds_an_hour: float


def schedule(parts: Parts, cores: int, runs: int = 1, overlap: bool = True, rounds: int = ROUNDS) -> Schedule:
    """Of `runs` runs of so many rounds; without `overlap` the next round waits for the evaluation."""
    free = [0.0] * cores  # a heap of when each core is done with what it was given

    def finished(when: float, jobs: Sequence[float]) -> float:
        """When jobs submitted at a time are done: the queue's first job goes to the first free core."""
        ends = [when]
        for job in jobs:
            ends.append(max(when, heappop(free)) + job)
            heappush(free, ends[-1])
        return max(ends)

    players = [_submissions(parts, overlap, rounds) for _ in range(runs)]
    waiting = [(when, number, jobs) for number, (when, jobs) in enumerate(map(next, players))]
    while waiting:
        when, number, jobs = heappop(waiting)
        with suppress(StopIteration):
            following, more = players[number].send(finished(when, jobs))
            heappush(waiting, (following, number, more))
    whole, work = max(free), runs * rounds * (sum(parts.devices) + sum(parts.chunks))
    return Schedule(whole, work / (cores * whole), 3600 * runs * rounds / whole)


def _submissions(parts: Parts, overlap: bool, rounds: int) -> Generator[tuple[float, tuple[float, ...]], float, None]:
    """What a run submits and when; it is told when that is done."""
    ready = evaluated = 0.0
    for _ in range(rounds):
        trained = yield ready, parts.devices
        settled = max(trained, evaluated) + parts.settle
        evaluated = yield settled, parts.chunks
        ready = (settled if overlap else evaluated) + parts.prepare


def measure(rounds: int = 7, config: RunConfig | None = None, dataset: Dataset | None = None) -> Parts:
    """The median of every part over so many rounds, after one to warm up; by the native engine on one thread."""
    config = config or RunConfig(case="iid", entropy=True)
    dataset = dataset or synthetic_dataset()
    federation = Federation(config, dataset, make_engine("native", dataset, threads=1))
    played = [_parts(federation) for _ in range(rounds + 1)][1:]

    def medians(name: str) -> tuple[float, ...]:
        return tuple(map(statistics.median, zip(*(getattr(parts, name) for parts in played), strict=True)))

    settle, prepare = (statistics.median(getattr(parts, name) for parts in played) for name in ("settle", "prepare"))
    return Parts(medians("devices"), medians("chunks"), settle, prepare)


def _parts(federation: Federation) -> Parts:
    """Of one round, which is played."""
    engine, data = federation.engine, federation.dataset
    prepare, work = _cpu(federation.begin_round)
    alone = [Work(work.weights, work.rule, (device,)) for device in work.devices]
    devices, trained = zip(*(_cpu(partial(engine.train, one)) for one in alone), strict=True)
    settle, _ = _cpu(partial(federation.settle_round, _joined(trained)))
    starts = range(0, len(data.test_images), EVALUATION_CHUNK)
    parts = [slice(start, start + EVALUATION_CHUNK) for start in starts]
    chunks = [
        _cpu(partial(engine.evaluate, federation.weights, data.test_images[part], data.test_labels[part]))[0]
        for part in parts
    ]
    return Parts(devices, tuple(chunks), settle, prepare)


def _cpu(action: Callable[[], T]) -> tuple[float, T]:
    """Its CPU seconds, which other work on this machine does not lengthen, and its result."""
    start = time.process_time()
    result = action()
    return time.process_time() - start, result


def _joined(cohorts: Sequence[Cohort]) -> Cohort:
    """One of the devices of all."""
    return Cohort(*(np.concatenate([getattr(cohort, name) for cohort in cohorts]) for name in JOINED))


def measured(rounds: int = 7) -> dict:
    """What is written to the file."""
    return {**about(), "rounds": rounds, "parts": asdict(measure(rounds))}


def table(report: dict) -> str:
    """A row for each number of cores and of runs; "in Python" is the part of the time that the runs themselves need."""
    parts = Parts(**report["parts"])
    train, evaluate = sum(parts.devices), sum(parts.chunks)
    own = parts.settle + parts.prepare
    lines = [
        f"computed, not measured, from the CPU time of a round on one thread of {report['machine']['processor']}: "
        f"{len(parts.devices)} devices {train:.3f} s, {len(parts.chunks)} chunks of evaluation {evaluate:.3f} s, "
        f"the run itself {1e3 * own:.1f} ms",
        f"{'cores':>6}{'runs':>6}  {'next round trains':22}{'busy':>6}{'rounds/h':>10}{'a run':>9}{'in Python':>11}",
    ]
    for cores in CORES:
        usual = side_by_side(cores)
        for runs, overlap in [(1, False), *((runs, True) for runs in sorted({1, 2, usual, 2 * usual}))]:
            found = schedule(parts, cores, runs, overlap)
            when = "during the evaluation" if overlap else "after the evaluation"
            remark = "  as `make train` does" if overlap and runs == usual else ""
            lines.append(
                f"{cores:6}{runs:6}  {when:22}{found.busy:6.0%}{found.rounds_an_hour:10,.0f}"
                f"{found.rounds_an_hour / runs:9,.0f}{found.rounds_an_hour / 3600 * own:11.0%}{remark}"
            )
    return "\n".join(lines)
