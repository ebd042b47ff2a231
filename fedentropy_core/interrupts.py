"""Ctrl-C, SIGTERM and SIGHUP while a run trains: it stops where it can be saved, and says how to go on."""

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

import numpy as np

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """Something was stopped by a signal; the message says how to go on."""

    def __init__(self, message: str, signum: int = signal.SIGINT):
        super().__init__(message)
        self.exit_code = 128 + signum


def stop(signum: int, frame: FrameType | None) -> None:
    """A handler that ends whatever is done."""
    raise Stopped("stopped", signum)


def ignore() -> None:
    """From here on nothing is left to stop."""
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)


@contextmanager
def stopped_by(flag: np.ndarray) -> Iterator[None]:
    """Herein a signal that is answered at once sets the flag and raises nothing.

    For what waits for other threads: an exception amid the locks of a thread pool may leave one of them locked.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _flags.append(flag)
    try:
        yield
    finally:
        _flags.pop()


_flags: list[np.ndarray] = []  # of the work in threads that the main thread waits for


class Interrupts:
    """Within `with Interrupts() as interrupts`, a signal waits until it can be answered.

    Inside `at_once` it raises KeyboardInterrupt there, or where threads are worked with as soon as they have stopped;
    elsewhere it is noted in `received`. A second signal raises anywhere. Handlers that others installed stay, and only
    a main thread can have any.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._ready = False
        self._restore = ExitStack()

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            ours = (signal.SIG_DFL, signal.default_int_handler, stop)
            # A signal that comes between two of these calls must not leave a handler behind.
            with ExitStack() as restore:
                for signum in SIGNALS:
                    if (handler := signal.getsignal(signum)) in ours:
                        restore.callback(_put_back, signum, handler)
                        signal.signal(signum, self._note)
                self._restore = restore.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._restore.close()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """What may be ended at any moment."""
        if self.received is not None:
            raise KeyboardInterrupt
        self._ready = True
        try:
            yield
        finally:
            self._ready = False

    def stopped(self, message: str) -> Stopped:
        """What to raise once everything is saved."""
        return Stopped(message, self.received or signal.SIGINT)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        at_once, again = self._ready, self.received is not None
        self.received, self._ready = signum, False
        if at_once and _flags and not again:
            _flags[-1][0] = 1
        elif at_once or again:
            raise Stopped("stopped; the same command goes on from the last checkpoint", signum)


def _put_back(signum: int, handler: object) -> None:
    try:
        signal.signal(signum, handler)
    except KeyboardInterrupt:  # one that came before is raised first
        signal.signal(signum, handler)
        raise
