"""A record's JSON: what was computed, on what it was made, and whether it says all that every record says."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from math import isfinite

from fedentropy_core.config import RunConfig


def about_run(config: RunConfig, fingerprint: str, engine: str, test_images: Sequence[int]) -> dict:
    """The part that says what was computed; the same on every machine.

    `test_images`: how many of each class there are.
    """
    about = {"config": asdict(config), "key": config.key, "data_fingerprint": fingerprint, "engine": engine}
    return about | {"test_images": list(test_images)}


def check_about(about: dict) -> None:
    """A ValueError names what a record's JSON lacks, or has in another form."""
    for name in ("key", "data_fingerprint", "engine", "final_digest"):
        if not (_is_text(about.get(name)) and about[name]):
            raise ValueError(f"its {name} is missing or no text")
    _check_table(about.get("provenance"), "provenance", _MADE | {"wall_seconds": _is_time})
    before = about.get("begun_on", [])
    if not isinstance(before, list):
        raise ValueError("its begun_on is no list")
    for made in before:
        _check_table(made, "begun_on", _MADE)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    return type(value) is int and value > 0


def _is_time(value: object) -> bool:
    return type(value) in (int, float) and isfinite(value) and value >= 0


def _are_texts(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


# Not `gpu`, which the very first records do not have.
_MADE: dict[str, Callable[[object], bool]] = {
    "commit": _is_text,
    "cores": _is_count,
    "cpu": _is_text,
    "platform": _is_text,
    "python": _is_text,
    "versions": _are_texts,
}


def _check_table(table: object, name: str, fields: dict[str, Callable[[object], bool]]) -> None:
    if not isinstance(table, dict):
        raise ValueError(f"its {name} is missing or no table")
    wrong = [field for field, good in fields.items() if not good(table.get(field))]
    if wrong:
        raise ValueError(f"its {name} does not say {', '.join(wrong)} as records do")
