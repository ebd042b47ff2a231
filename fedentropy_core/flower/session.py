"""The rounds of Algorithm 2 over a Grid: select, train, judge, fetch the kept models, average."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from logging import INFO, WARNING
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from fedentropy_core.flower.exchange import Exchange, Letter, exchange
from fedentropy_core.flower.protocol import (
    ARRAYS,
    CONFIG,
    TRAIN,
    UPLOAD,
    Arrays,
    pack,
    read_arrays,
    read_soft_label,
    round_config,
    unpack,
)
from fedentropy_core.flower.roster import Roster
from fedentropy_core.judgment import Judgment, judge, keep_all
from fedentropy_core.methods import aggregate, move
from fedentropy_core.randomness import generator
from fedentropy_core.selection import Selection, make_selection

if TYPE_CHECKING:
    from fedentropy_core.flower.strategy import FedEntropyStrategy

WAIT_SECONDS = 0.5

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


class TooFewDevices(RuntimeError):
    """A round cannot be completed: too few devices are connected or answer."""


@dataclass(frozen=True)
class RoundReport:
    """A finished round. `failed` says for each device that failed in it why; bytes are those of the messages' content.

    `bytes_up` and `bytes_down` include attempts that were given up.
    """

    round: int
    chosen: tuple[int, ...]
    kept: tuple[int, ...]
    failed: dict[int, str]
    entropy_before: float
    entropy_after: float
    models_up: int
    bytes_up: int
    bytes_down: int
    attempts: int
    metrics: MetricRecord | None = None


@dataclass(frozen=True)
class Result:
    arrays: ArrayRecord
    rounds: tuple[RoundReport, ...]


@dataclass
class _Tally:
    """What builds up over the attempts of one round."""

    failed: dict[int, str] = field(default_factory=dict)
    bad_nodes: set[int] = field(default_factory=set)
    bytes_up: int = 0
    bytes_down: int = 0

    def count(self, done: Exchange, nodes: dict[int, int]) -> None:
        self.failed |= done.failed
        self.bad_nodes |= {nodes[device] for device in done.failed}
        self.bytes_down += done.bytes_out
        self.bytes_up += done.bytes_in


class Session:
    """One run's server: the global model, the pools, and who is connected."""

    def __init__(self, strategy: FedEntropyStrategy, grid: Grid, initial: ArrayRecord):
        self.strategy, self.grid = strategy, grid
        self.model = unpack(initial)
        self.selection = make_selection(strategy.selection, strategy.devices, strategy.epsilon)
        self.method = strategy.method(self.model, strategy.devices)
        self.confirmed: dict[int, int] = {}
        self.roster = Roster(grid, strategy.devices, strategy.timeout)
        self._wait_for_start()

    def arrays(self) -> ArrayRecord:
        return pack(self.model)

    def play(self, round: int, evaluate: Evaluate | None = None) -> RoundReport:
        """One round, played again with other devices as long as too few of them answer."""
        tally = _Tally()
        for attempt in range(self.strategy.max_attempts):
            nodes = self._usable(tally)
            before = copy.deepcopy(self.selection)
            chosen = self.selection.draw(
                self.strategy.cohort, generator(self.strategy.seed, "selection", round, attempt)
            )
            outcome = self._attempt(round, chosen, nodes, tally)
            if outcome is None:
                lost = tuple(d for d in chosen if d not in nodes or nodes[d] in tally.bad_nodes)
                self.selection = _as_before(before, lost)
                log(WARNING, "round %d: too few devices answered, it is played again with others", round)
                continue
            judgment, kept, removed, uploads = outcome
            self.selection.settle(kept, removed)
            metrics = evaluate(round, self.arrays()) if evaluate else None
            log(INFO, "round %d: kept %d of %d devices %s", round, len(kept), len(chosen), dict(metrics or {}))
            return RoundReport(
                round=round,
                chosen=chosen,
                kept=kept,
                failed=tally.failed,
                entropy_before=judgment.entropies[0],
                entropy_after=judgment.entropies[-1],
                models_up=uploads,
                bytes_up=tally.bytes_up,
                bytes_down=tally.bytes_down,
                attempts=attempt + 1,
                metrics=metrics,
            )
        raise TooFewDevices(
            f"round {round}: {self.strategy.max_attempts} attempts, never {self.strategy.min_devices} devices; "
            f"failed: {tally.failed}"
        )

    def _attempt(
        self, round: int, chosen: tuple[int, ...], nodes: dict[int, int], tally: _Tally
    ) -> tuple[Judgment, tuple[int, ...], tuple[int, ...], int] | None:
        """(judgment, kept devices, removed devices, models uploaded), or None where too few answered."""
        least = self.strategy.min_devices
        for device in chosen:
            if device not in nodes:
                self._lose(round, device, tally.failed.setdefault(device, "not connected"))
        present = [device for device in chosen if device in nodes]
        if len(present) < least:
            return None
        labels = self._ask_soft_labels(round, present, nodes, tally)
        if len(labels) < least:
            return None
        judged = list(labels)
        soft_labels = np.stack([labels[device][0] for device in judged])
        sizes = np.array([labels[device][1] for device in judged], dtype=np.float64)
        judgment = (judge if self.strategy.entropy else keep_all)(soft_labels, sizes)
        kept = [judged[position] for position in judgment.kept]
        senders = judged if self.strategy.pools_only else kept
        uploads = self._fetch_models(round, senders, nodes, tally)
        if len(uploads) < min(least, len(senders)):
            return None
        self._average(round, uploads, {device: labels[device][1] for device in uploads})
        kept = tuple(device for device in kept if device in uploads)
        return judgment, kept, tuple(device for device in chosen if device not in kept), len(uploads)

    def _ask_soft_labels(self, round: int, devices: list[int], nodes: dict[int, int], tally: _Tally):
        """Message 1: the global model goes out, the soft label and the number of images come back."""
        shared = {ARRAYS: pack(self.model), **self.method.outgoing()}
        letters = {
            device: Letter(
                nodes[device], RecordDict({**shared, CONFIG: round_config(round, self.confirmed.get(device, 0))})
            )
            for device in devices
        }
        return self._send(
            TRAIN, letters, lambda content: read_soft_label(content, self.strategy.classes), round, nodes, tally
        )

    def _fetch_models(self, round: int, devices: list[int], nodes: dict[int, int], tally: _Tally):
        """Message 2, to the kept devices only: their models come back."""

        def read(content: RecordDict) -> tuple[Arrays, Arrays]:
            return read_arrays(content, ARRAYS, self.model), self.method.read(content)

        letters = {device: Letter(nodes[device], RecordDict({CONFIG: round_config(round, 0)})) for device in devices}
        return self._send(UPLOAD, letters, read, round, nodes, tally)

    def _send(self, kind: str, letters: dict[int, Letter], read, round: int, nodes: dict[int, int], tally: _Tally):
        done = exchange(self.grid, kind, letters, read, self.strategy.timeout, round)
        tally.count(done, nodes)
        for device, reason in done.failed.items():
            self._lose(round, device, reason)
        return done.answers

    def _average(self, round: int, uploads: dict[int, tuple[Arrays, Arrays]], sizes: dict[int, int]) -> None:
        models = [model for model, _ in uploads.values()]
        # Doubles, since a device may claim any size and whole numbers would overflow.
        weights = np.array([sizes[device] for device in uploads], dtype=np.float64)
        step = self.strategy.global_step
        self.model = {
            name: _moved(start, _mean([model[name] for model in models], weights), step)
            for name, start in self.model.items()
        }
        self.method.absorb([extra for _, extra in uploads.values()])
        self.confirmed |= dict.fromkeys(uploads, round)

    def _usable(self, tally: _Tally) -> dict[int, int]:
        """The nodes of connected devices that did not fail in this round; waits until there are min_devices."""
        deadline = time.monotonic() + self.strategy.timeout
        while True:
            connected = self.roster.connected()
            usable = {device: node for device, node in connected.items() if node not in tally.bad_nodes}
            if len(usable) >= self.strategy.min_devices:
                return usable
            if time.monotonic() > deadline:
                raise TooFewDevices(f"{len(usable)} devices are connected, {self.strategy.min_devices} are needed")
            time.sleep(WAIT_SECONDS)

    def _wait_for_start(self) -> None:
        wanted, deadline = self.strategy.devices, time.monotonic() + self.strategy.timeout
        while len(found := self.roster.connected()) < wanted:
            if time.monotonic() > deadline:
                log(WARNING, "%d of %d devices are connected; starting without the others", len(found), wanted)
                return
            time.sleep(WAIT_SECONDS)

    def _lose(self, round: int, device: int, reason: str) -> None:
        log(WARNING, "round %d: device %d is removed: %s", round, device, reason)


def _as_before(selection: Selection, lost: tuple[int, ...]) -> Selection:
    """The rule as it was before a draw that came to nothing, but that the lost devices count as removed."""
    state = selection.state()
    if "positive" in state:
        selection.restore({"positive": np.setdiff1d(state["positive"], lost)})
    else:
        selection.settle((), lost)
    return selection


def _moved(start: np.ndarray, mean: np.ndarray, global_step: float) -> np.ndarray:
    """Whole numbers, such as a batch count, take no step."""
    return move(start, mean, global_step) if mean.dtype.kind == "f" else mean


def _mean(arrays: list[np.ndarray], sizes: np.ndarray) -> np.ndarray:
    """Σ l_k w_k / Σ l_k of one array of the model; whole numbers, such as a batch count, are rounded."""
    first = arrays[0]
    rows = np.stack([array.reshape(-1) for array in arrays])
    if first.dtype.kind == "f":
        return aggregate(rows, sizes).reshape(first.shape)
    return np.rint(aggregate(rows.astype(np.float64), sizes)).astype(first.dtype).reshape(first.shape)
