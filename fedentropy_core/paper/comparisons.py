"""Whether one method is better than another: a paired difference over seeds, its interval, and what follows.

Seeds pair two methods, since a seed fixes the partition and the initial weights. A difference holds if its 95 %
confidence interval (Student's t) is on the claimed side of zero, fails if it is on the other side, and is open if the
interval contains zero or there is one seed only. A run that never reaches a target has no number: where that happens a
difference holds if the claimed method is ahead for every seed, fails if it is behind for every seed, and is open
otherwise, or with fewer seeds than the paper's three. A method of which a run diverged is never ahead: its numbers are
those of the rounds before.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np

from fedentropy_core.paper.protocol import SEEDS
from fedentropy_core.paper.tables import megabytes_to_target, rounds_to_target
from fedentropy_core.report.looks import NAMES
from fedentropy_core.report.records import DATASET_NAMES, MEASURES, Records, at_chance, count_diverged
from fedentropy_core.runs.record import RunRecord

# Two-sided 95 % quantiles of Student's t with n − 1 degrees of freedom, by the number of seeds n.
# Beyond ten seeds ten's serves, a little too wide.
T_QUANTILES = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}


@dataclass(frozen=True)
class Measure:
    """A number of a run, None where it has none; `better` and `worse` are the words for a difference."""

    of: Callable[[RunRecord], float | None]
    less_is_better: bool
    better: str
    worse: str


LAST_TEN = Measure(MEASURES["last ten"], False, "points more", "points less")
BEST_ROUND = Measure(MEASURES["best round"], False, "points more", "points less")
ROUNDS = Measure(rounds_to_target, True, "rounds fewer", "rounds more")
MEGABYTES = Measure(megabytes_to_target, True, "MB less", "MB more")


@dataclass(frozen=True)
class Comparison:
    """The claim that `better` is ahead of `worse` in one data set and case."""

    dataset: str
    case: int
    better: str
    worse: str


class Outcome(Enum):
    HOLDS, FAILS, OPEN = "holds", "fails", "open"


@dataclass(frozen=True)
class Measured:
    """A comparison's leads, one a seed: > 0 if `better` is ahead; ±∞ if only one gets there, NaN if neither does.

    `collapsed`: with how many seeds `worse` ends at chance, so that a lead over it says little; `better_diverged` and
    `worse_diverged`: with how many a run did not get to its end.
    """

    comparison: Comparison
    measure: Measure
    leads: np.ndarray
    collapsed: int
    better_diverged: int
    worse_diverged: int

    @property
    def seeds(self) -> int:
        return len(self.leads)

    @property
    def mean(self) -> float:
        return float(self.leads.mean()) if np.isfinite(self.leads).all() else float("nan")

    @property
    def half_width(self) -> float:
        """Of the 95 % interval; NaN with one seed, or where a run has no number."""
        if self.seeds < 2 or not np.isfinite(self.leads).all():
            return float("nan")
        return float(T_QUANTILES[min(self.seeds, 10)] * self.leads.std(ddof=1) / np.sqrt(self.seeds))

    @property
    def points_right(self) -> bool:
        """Whether the claimed method, if it never diverged, is ahead for most seeds; with all numbers, on average."""
        ahead = self.mean > 0 if np.isfinite(self.leads).all() else bool(np.nansum(np.sign(self.leads)) > 0)
        return ahead and not self.better_diverged

    @property
    def outcome(self) -> Outcome:
        if self.seeds < 2:
            return Outcome.OPEN
        if np.isfinite(self.leads).all():
            ahead, behind = self.mean > self.half_width, -self.mean > self.half_width
        else:
            enough = self.seeds >= len(SEEDS)
            ahead, behind = enough and (self.leads > 0).all(), enough and (self.leads < 0).all()
        if ahead and not self.better_diverged:
            return Outcome.HOLDS
        return Outcome.FAILS if behind and not self.worse_diverged else Outcome.OPEN

    def text(self) -> str:
        c = self.comparison
        place = f"{DATASET_NAMES[c.dataset]} case {c.case}, {NAMES[c.better]} against {NAMES[c.worse]}"
        remarks = (
            (c.worse, "being at chance", self.collapsed),
            (c.worse, "having diverged", self.worse_diverged),
            (c.better, "having diverged", self.better_diverged),
        )
        said = "".join(f", {NAMES[who]} {what}{self._with(count)}" for who, what, count in remarks if count)
        return f"{place}: {self._lead_text()} ({self.seeds}){said}"

    def _with(self, count: int) -> str:
        return "" if count == self.seeds else f" with {count} of {self.seeds} seeds"

    def _lead_text(self) -> str:
        if not np.isfinite(self.leads).all():
            better, worse = NAMES[self.comparison.better], NAMES[self.comparison.worse]
            counts = {
                f"only {better} reaches the target": np.sum(self.leads == np.inf),
                f"only {worse} reaches the target": np.sum(self.leads == -np.inf),
                "neither reaches the target": np.sum(np.isnan(self.leads)),
                "both reach the target": np.sum(np.isfinite(self.leads)),
            }
            return ", ".join(f"{text} with {count} of {self.seeds} seeds" for text, count in counts.items() if count)
        words = self.measure.better if self.mean >= 0 else self.measure.worse
        interval = "" if np.isnan(self.half_width) else f" ± {self.half_width:.2f}"
        return f"{abs(self.mean):.2f}{interval} {words}"


def measure_pair(records: Records, pair: Comparison, measure: Measure) -> Measured | None:
    """The leads over the seeds that both methods have; None if there is none."""
    runs = records.pairs(pair.dataset, pair.case, pair.better, pair.worse)
    if not runs:
        return None
    return Measured(
        pair,
        measure,
        np.array([_lead(measure.of(better), measure.of(worse), measure) for better, worse in runs]),
        collapsed=sum(at_chance(worse) for _, worse in runs),
        better_diverged=count_diverged(better for better, _ in runs),
        worse_diverged=count_diverged(worse for _, worse in runs),
    )


def _lead(better: float | None, worse: float | None, measure: Measure) -> float:
    if better is None or worse is None:
        return np.nan if better is worse else np.inf if worse is None else -np.inf
    return worse - better if measure.less_is_better else better - worse
