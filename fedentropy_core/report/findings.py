"""What we say of our results: a sentence with its numbers from records, and a condition that the numbers must meet."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

Number = float | int | str

# Names with digits in them are no numbers of ours.
NAMES_WITH_DIGITS = re.compile(r"CIFAR-10\b|CIFAR-100\b|CINIC-10\b")
EXTREMES = (0, 1, -1, 0.5, -0.5, 1e9, -1e9)


@dataclass(frozen=True)
class Finding:
    """A sentence as its numbers make it, whether they still support it, and the sentence without them."""

    text: str
    holds: bool
    sentence: str

    def __str__(self) -> str:
        return self.text if self.holds else f"Overturned by the records: {self.text}"

    def _repr_markdown_(self) -> str:
        return self.text if self.holds else f"**Overturned by the records:** ~~{self.text}~~"

    __repr__ = __str__


class Findings(tuple[Finding, ...]):
    """Findings as a reader sees them: a list, in a notebook and in Markdown."""

    def _repr_markdown_(self) -> str:
        return "".join(f"- {finding._repr_markdown_()}\n" for finding in self) or "No runs to speak of yet."

    def __repr__(self) -> str:
        return "".join(f"- {finding}\n" for finding in self) or "No runs to speak of yet."


def say(sentence: str, holds: Callable[..., bool], **numbers: Number) -> Finding:
    """A finding such as say("FedEntropy leads by {gain:.1f} points", lambda gain: gain > 0, gain=gain).

    The condition is a function of the numbers that it names. Digits may come from numbers only, and a condition that no
    number can overturn is refused, as what it guards could never be wrong.
    """
    typed = re.search(r"\d", NAMES_WITH_DIGITS.sub("", re.sub(r"\{[^{}]*\}", "", sentence)))
    if typed:
        raise ValueError(f"a number is typed into {sentence!r}: give it as {{a name}}")
    asked = {name: numbers[name] for name in _names(holds, numbers)}
    standing = bool(holds(**asked))
    if standing and not _can_be_overturned(holds, asked):
        raise ValueError(f"no number could overturn {sentence!r}: its condition is a constant")
    return Finding(sentence.format(**numbers), standing, sentence)


def listed(values: Iterable[Number], form: str = "") -> str:
    """Values as words: 1, 2 and 3."""
    *first, last = [format(value, form) for value in values]
    return f"{', '.join(first)} and {last}" if first else last


def _names(holds: Callable[..., bool], numbers: dict[str, Number]) -> tuple[str, ...]:
    names = holds.__code__.co_varnames[: holds.__code__.co_argcount]
    missing = [name for name in names if name not in numbers]
    if missing:
        raise ValueError(f"the condition asks for {', '.join(missing)}, which the sentence is not given")
    return names


def _can_be_overturned(holds: Callable[..., bool], numbers: dict[str, Number]) -> bool:
    """Whether some other value of a number does not meet the condition."""
    others = [
        numbers | {name: other}
        for name, value in numbers.items()
        if isinstance(value, (int, float))
        for other in (*EXTREMES, -value, 2 * value, value / 2)
    ]
    others.append({name: -value if isinstance(value, (int, float)) else value for name, value in numbers.items()})
    return not all(holds(**other) for other in others)
