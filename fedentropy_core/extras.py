"""What `pip install` brings only when asked: a package that is missing is named with the command that brings it."""

from collections.abc import Iterator
from contextlib import contextmanager

_NOTES = {"flower": ", on Python 3.11 or newer"}


class MissingExtra(ModuleNotFoundError):
    """A package of an extra is not installed."""


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Around the imports of an extra's packages."""
    try:
        yield
    except ModuleNotFoundError as missing:
        command = f"pip install 'fedentropy-core[{extra}]'{_NOTES.get(extra, '')}"
        raise MissingExtra(f"this needs {missing.name}: {command}", name=missing.name) from None
