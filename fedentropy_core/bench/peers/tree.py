"""CPU time and memory of a process with all that it has started."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from fedentropy_core.extras import needs

with needs("dev"):
    import psutil

SAMPLE_SECONDS = 0.1


def processes(root: psutil.Process) -> list[psutil.Process]:
    """It and its descendants."""
    with suppress(psutil.NoSuchProcess):
        return [root, *root.children(recursive=True)]
    return []


def cpu_seconds(root: psutil.Process) -> float:
    """User and system time; a process that has ended is counted with the parent that waited for it."""
    total = 0.0
    for process in processes(root):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def memory(root: psutil.Process) -> float:
    """MB; of a page that several processes share each is charged its part, where the system tells (Linux)."""
    total = 0
    for process in processes(root):
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            held = process.memory_full_info()
            total += getattr(held, "pss", held.uss)
    return total / 1e6


@contextmanager
def peak_memory(root: psutil.Process) -> Iterator[list[float]]:
    """Looks again and again while the context lasts; the list's one number is the most there was."""
    peak, over = [memory(root)], threading.Event()

    def watch() -> None:
        while not over.wait(SAMPLE_SECONDS):
            peak[0] = max(peak[0], memory(root))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()
        peak[0] = max(peak[0], memory(root))


def end(root: psutil.Process, seconds: float = 5) -> None:
    """Ends all of it that still lives."""
    alive = processes(root)
    for act in (psutil.Process.terminate, psutil.Process.kill):
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                act(process)
        _, alive = psutil.wait_procs(alive, seconds)
