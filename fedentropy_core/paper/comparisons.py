"""One method against another on one data set and case: our difference with its interval, the paper's, and a verdict.

*Direction* is decided by the last hundred rounds: it holds if the 95 % interval is on the claimed side of zero, fails
if it is on the other, else it is open; called underpowered if it points the claimed way and the power for the paper's
effect (or the smallest that counts) is too low. *Size* compares the paper's measure, the last ten rounds, with its own
number: it agrees within two standard errors, those of both sides counted. Rounds and bytes to a target are three whole
numbers with gaps, so their direction is decided seed by seed. All intervals are conditional on the study's partitions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pandas as pd

from fedentropy_core.paper.protocol import CONFIDENCE, POWER, SEEDS, SMALLEST_GAIN
from fedentropy_core.paper.reported import ROUNDS_TABLES, TARGETS, papers_number
from fedentropy_core.report.frame import reached
from fedentropy_core.report.statistics import (
    Effect,
    Spread,
    difference,
    error_of_difference,
    paired_difference,
    pooled,
    seeds_correlate,
)

DECIDING, PAPERS, BEST = "last_hundred", "last_ten", "best"  # the frame's accuracies


class Direction(Enum):
    HOLDS, FAILS, OPEN = "holds", "fails", "open"
    UNDERPOWERED, UNTESTED = "underpowered", "not tested"


@dataclass(frozen=True)
class Pair:
    """The claim that `better` is ahead of `worse`. `table`: where the paper has both by its own measure, or ""."""

    dataset: str
    case: int
    better: str
    worse: str
    table: str = "table1"


@dataclass(frozen=True)
class Judged:
    """A pair, measured. Differences are > 0 if `better` is ahead; NaN where there is nothing to say."""

    pair: Pair
    measure: str
    direction: Direction
    mean: float = np.nan
    low: float = np.nan
    high: float = np.nan
    seeds: int = 0
    p_value: float = 1.0
    power: float = np.nan  # for the paper's effect, or the smallest that counts
    paired: bool = False
    paper: float = np.nan
    paper_error: float = np.nan
    ours: float = np.nan  # by the paper's measure
    ours_error: float = np.nan
    remark: str = ""

    @property
    def agrees(self) -> bool | None:
        """Whether the paper's number is ours within two standard errors; None where one side has none."""
        errors = np.hypot(self.paper_error, self.ours_error)
        return None if np.isnan(self.paper - self.ours + errors) else bool(abs(self.paper - self.ours) <= 2 * errors)


class Cells:
    """The values of a frame by data set, case and variant, and how they spread."""

    def __init__(self, frame: pd.DataFrame):
        runs = frame.sort_values("seed")
        self.runs = dict(iter(runs.groupby(["dataset", "case", "variant"]))) if len(runs) else {}

    def of(self, dataset: str, case: int, variant: str) -> pd.DataFrame | None:
        return self.runs.get((dataset, case, variant))

    def both(self, pair: Pair) -> tuple[pd.DataFrame, pd.DataFrame] | None:
        found = tuple(self.of(pair.dataset, pair.case, variant) for variant in (pair.better, pair.worse))
        return None if any(rows is None for rows in found) else found

    def shared(self, pair: Pair) -> tuple[pd.DataFrame, pd.DataFrame] | None:
        """The runs of the seeds that both have."""
        if (found := self.both(pair)) is None:
            return None
        seeds = set(found[0]["seed"]) & set(found[1]["seed"])
        return tuple(rows[rows["seed"].isin(seeds)] for rows in found) if seeds else None

    def spread(self, like: pd.DataFrame, measure: str) -> Spread:
        """Pooled over the methods of the same data set and case that learned as well, or that did not either."""
        place, live = tuple(like[["dataset", "case"]].iloc[0]), _live(like)
        return pooled(
            [
                rows[measure].to_numpy()
                for (*where, _), rows in self.runs.items()
                if tuple(where) == place and _live(rows) == live
            ]
        )

    def effect(self, pair: Pair, measure: str) -> tuple[Effect, bool] | None:
        """better − worse; and whether by seed, because the two are high and low with the same seeds everywhere."""
        if (found := self.both(pair)) is None:
            return None
        one, other = (rows[measure].to_numpy() for rows in found)
        if self._paired(pair.better, pair.worse, measure) and (both := self.shared(pair)) is not None:
            one, other = (rows[measure].to_numpy() for rows in both)
            if len(one) > 1:
                return paired_difference(one - other), True
        return difference(one, other, *(self.spread(rows, measure) for rows in found)), False

    def _paired(self, better: str, worse: str, measure: str) -> bool:
        places = {(dataset, case) for dataset, case, variant in self.runs if variant == better}
        both = [self.shared(Pair(*place, better, worse)) for place in sorted(places, key=str)]
        cells = [tuple(rows[measure].to_numpy() for rows in each) for each in both if each is not None]
        cells = [cell for cell in cells if len(cell[0]) > 1]
        return bool(cells) and seeds_correlate(cells)


def judge_accuracy(cells: Cells, pair: Pair, measure: str = DECIDING) -> Judged:
    """A difference of accuracies in points. With the best round as its measure the paper's is Table 3's."""
    found = cells.effect(pair, measure)
    paper, paper_error = papers_difference(pair)
    if found is None:
        return Judged(pair, measure, Direction.UNTESTED, paper=paper, paper_error=paper_error, remark="no runs")
    effect, paired = found
    better, worse = cells.both(pair)
    direction = _direction(effect, better["diverged"].any(), worse["diverged"].any(), _counts(paper))
    like_paper, _ = cells.effect(pair, PAPERS if measure == DECIDING else measure)
    low, high = effect.interval(CONFIDENCE) if effect.n > 1 else (-np.inf, np.inf)
    other = _direction(like_paper, better["diverged"].any(), worse["diverged"].any(), _counts(paper))
    remarks = list(_remarks(better, worse))
    if other is not direction and measure == DECIDING and effect.n > 1:
        remarks.append(f"by the last ten rounds {other.value}")
    return Judged(
        pair,
        measure,
        direction if effect.n > 1 else Direction.UNTESTED,
        effect.mean,
        low,
        high,
        effect.n,
        effect.p_value(),
        effect.power(_counts(paper), CONFIDENCE),
        paired,
        paper,
        paper_error,
        like_paper.mean,
        like_paper.error,
        "; ".join(remarks),
    )


def judge_target(cells: Cells, pair: Pair, what: str) -> Judged:
    """Rounds, smooth rounds or megabytes to the paper's target: how many percent less `better` needs.

    It holds if `better` is ahead with every seed, of three at least, and fails if it is behind with every one.
    """
    paper = (np.nan, np.nan)
    if what == "rounds" and pair.dataset in ROUNDS_TABLES:
        paper = papers_saving(Pair(pair.dataset, pair.case, pair.better, pair.worse, ROUNDS_TABLES[pair.dataset]))
    if (found := cells.shared(pair)) is None or (pair.dataset, pair.case) not in TARGETS:
        return Judged(pair, what, Direction.UNTESTED, paper=paper[0], paper_error=paper[1], remark="no runs")
    target = TARGETS[pair.dataset, pair.case]
    one, other = (np.array([reached(record, target)[what] for record in rows["record"]]) for rows in found)
    never = 1e9  # rounds or megabytes; who never gets there is behind who does
    leads = np.sign(np.nan_to_num(other, nan=never) - np.nan_to_num(one, nan=never))
    direction = Direction.OPEN
    if len(one) < len(SEEDS):
        direction = Direction.UNTESTED
    elif (leads > 0).all() and not found[0]["diverged"].any():
        direction = Direction.HOLDS
    elif (leads < 0).all() and not found[1]["diverged"].any():
        direction = Direction.FAILS
    saving, error = _saving(one, other)
    by_seed = ", ".join(f"{_whole(a)} against {_whole(b)}" for a, b in zip(one, other, strict=True))
    return Judged(
        pair, what, direction, saving, seeds=len(one), paper=paper[0], paper_error=paper[1], ours=saving,
        ours_error=error, remark=by_seed,
    )  # fmt: skip


def papers_difference(pair: Pair) -> tuple[float, float]:
    """The paper's difference in points with its standard error; NaN where it does not have both by one measure."""
    both = [papers_number(pair.table, pair.dataset, pair.case, v) for v in (pair.better, pair.worse)]
    if not pair.table or None in both:
        return np.nan, np.nan
    (one, first), (other, second) = both
    return one - other, error_of_difference((first, second), len(SEEDS))


def papers_saving(pair: Pair) -> tuple[float, float]:
    """How many percent fewer rounds the paper has, with its standard error."""
    both = [papers_number(pair.table, pair.dataset, pair.case, v) for v in (pair.better, pair.worse)]
    if None in both:
        return np.nan, np.nan
    (one, first), (other, second) = both
    return _ratio(one, first / np.sqrt(len(SEEDS)), other, second / np.sqrt(len(SEEDS)))


def _saving(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Of means over seeds, if all get there."""
    if len(one) < 2 or np.isnan(one).any() or np.isnan(other).any():
        return np.nan, np.nan
    errors = (np.std(side, ddof=1) / np.sqrt(len(side)) for side in (one, other))
    return _ratio(one.mean(), next(errors), other.mean(), next(errors))


def _ratio(one: float, error: float, other: float, other_error: float) -> tuple[float, float]:
    """100·(1 − one/other) with its standard error to first order."""
    ratio = one / other
    return 100 * (1 - ratio), 100 * ratio * float(np.hypot(error / one, other_error / other))


def _live(rows: pd.DataFrame) -> bool:
    """Whether a method learned: no seed of it diverged, and not all ended at chance."""
    return not rows["diverged"].any() and not rows["at_chance"].all()


def _counts(paper: float) -> float:
    """The effect that power is for."""
    return SMALLEST_GAIN if np.isnan(paper) or paper <= 0 else paper


def _direction(effect: Effect, better_diverged: bool, worse_diverged: bool, true: float) -> Direction:
    low, high = effect.interval(CONFIDENCE)
    if low > 0 and not better_diverged:
        return Direction.HOLDS
    if high < 0 and not worse_diverged:
        return Direction.FAILS
    weak = effect.mean > 0 and not better_diverged and effect.power(true, CONFIDENCE) < POWER
    return Direction.UNDERPOWERED if weak else Direction.OPEN


def _remarks(better: pd.DataFrame, worse: pd.DataFrame) -> Iterator[str]:
    for rows in (better, worse):
        for column, words in (("diverged", "diverged"), ("at_chance", "at chance")):
            if count := int(rows[column].sum()):
                yield f"{rows['variant'].iloc[0]} {words} with {count} of {len(rows)} seeds"


def _whole(value: float) -> str:
    return "never" if np.isnan(value) else f"{value:,.0f}"
