"""Ctrl-C, SIGTERM and SIGHUP while a run trains: it stops where it can be saved, and says how to go on."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """Something was stopped by a signal; the message says how to go on."""

    def __init__(self, message: str, signum: int = signal.SIGINT):
        super().__init__(message)
        self.exit_code = 128 + signum


def stop(signum: int, frame: FrameType | None) -> None:
    """A handler that ends whatever is done."""
    raise Stopped("stopped", signum)


class Interrupts:
    """Within `with Interrupts() as interrupts`, a signal waits until it can be answered.

    Inside `at_once` it raises KeyboardInterrupt there; elsewhere it is noted in `received`. A second signal raises
    anywhere. Handlers that others installed stay, and only a main thread can have any.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._ready = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            ours = (signal.SIG_DFL, signal.default_int_handler, stop)
            handlers = {signum: signal.getsignal(signum) for signum in SIGNALS}
            self._before = {signum: handler for signum, handler in handlers.items() if handler in ours}
            for signum in self._before:
                signal.signal(signum, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

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
        at_once = self._ready or self.received is not None
        self.received, self._ready = signum, False
        if at_once:
            raise KeyboardInterrupt
