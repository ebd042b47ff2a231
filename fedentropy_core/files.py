"""Where data and results live, and how files get there without ever being half written."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_PACKAGE_PARENT = Path(__file__).resolve().parent.parent


def project_root() -> Path:
    """The checkout this package is imported from; the current folder if the package was installed elsewhere."""
    return _PACKAGE_PARENT if (_PACKAGE_PARENT / "pyproject.toml").exists() else Path.cwd()


def results_root() -> Path:
    """The folder of records: FEDENTROPY_RESULTS, else results/ in the project."""
    return Path(os.environ.get("FEDENTROPY_RESULTS") or project_root() / "results")


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes its place at `path` only when complete and on disk.

    On any error the old file stays as it was and nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
