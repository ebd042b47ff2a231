"""How training is told to end: by a deadline, or by Ctrl-C, SIGTERM and SIGHUP; a batch under way hears of it."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import numpy as np


class Stopped(KeyboardInterrupt):
    """Something was stopped by a signal; the message says how to go on."""

    def __init__(self, message: str, exit_code: int = 128 + signal.SIGINT):
        super().__init__(message)
        self.exit_code = exit_code


class Halted(Exception):
    """An engine was told to stop in the middle of a round, which then was never played."""


class Stop:
    """What the threads of a training look at: whether it has to end, since it is late or somebody asked."""

    def __init__(self, deadline: float | None = None):
        """`deadline`: of time.monotonic()."""
        self.deadline, self.asked = deadline, False
        self._flags: list[np.ndarray] = []
        self._lock = threading.Lock()

    @property
    def late(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline

    @property
    def due(self) -> bool:
        return self.asked or self.late

    def ask(self) -> None:
        """A round under way ends at its next batch; a deadline lets it be played to its end."""
        with self._lock:
            self.asked = True
            for flag in self._flags:
                flag[0] = 1

    @contextmanager
    def flag(self) -> Iterator[np.ndarray]:
        """An int32 for an engine to look at, which becomes 1 once it is to stop."""
        flag = np.zeros(1, np.int32)
        with self._lock:
            flag[0] = self.asked
            self._flags.append(flag)
        try:
            yield flag
        finally:
            with self._lock:
                self._flags = [other for other in self._flags if other is not flag]


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ignore() -> None:
    """From here on nothing is left to stop."""
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)


def stop_on_signals() -> None:
    """SIGTERM and SIGHUP end a command as Ctrl-C does, unless they are ignored, as after nohup."""
    for signum in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) is signal.SIG_DFL:
            signal.signal(signum, _stop)


def _stop(signum: int, frame: FrameType | None) -> None:
    raise Stopped("stopped", 128 + signum)
