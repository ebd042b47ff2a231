"""What numbers of several seeds say: arrays in, numbers out. Nothing here knows of records or names.

Methods of one data set and case are *cells*: an array each, a value a seed. Cells are taken to differ in their means
and share a standard deviation, which is pooled over them, since three values alone say next to nothing about theirs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from fedentropy_core.extras import needs

with needs("report"):
    from scipy import stats

MOST_FLIPPED = 20  # pairs whose signs are all flipped; a million ways


@dataclass(frozen=True)
class Spread:
    """A standard deviation and its degrees of freedom."""

    deviation: float
    freedom: int


@dataclass(frozen=True)
class Effect:
    """A difference of means and how well it is known."""

    mean: float
    error: float  # standard error
    freedom: float
    n: int  # values of the smaller cell, or pairs

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Student's; unbounded without degrees of freedom."""
        half = self._quantile(confidence) * self.error if self.freedom else np.inf
        return self.mean - half, self.mean + half

    def p_value(self) -> float:
        """Two-sided, of no difference; 1 without degrees of freedom."""
        if not self.freedom:
            return 1.0
        if self.error == 0:
            return 1.0 if self.mean == 0 else 0.0
        return float(2 * stats.t.sf(abs(self.mean) / self.error, self.freedom))

    def power(self, true: float, confidence: float = 0.95) -> float:
        """How probable an interval above zero is if the true difference is this."""
        if not self.freedom:
            return 0.0
        if self.error == 0:
            return float(true > 0)
        return float(stats.nct.sf(self._quantile(confidence), self.freedom, true / self.error))

    def _quantile(self, confidence: float) -> float:
        return float(stats.t.ppf(0.5 + confidence / 2, self.freedom))


def pooled(cells: Sequence[np.ndarray]) -> Spread:
    """√(Σ (n_i − 1)·s_i² / Σ (n_i − 1)): the standard deviation that the cells share."""
    squares = sum(float(((cell - cell.mean()) ** 2).sum()) for cell in map(np.asarray, cells) if len(cell))
    freedom = sum(len(cell) - 1 for cell in cells if len(cell))
    return Spread(float(np.sqrt(squares / freedom)) if freedom else np.nan, freedom)


def difference(one: np.ndarray, other: np.ndarray, spread: Spread, other_spread: Spread | None = None) -> Effect:
    """mean(one) − mean(other), with s·√(1/n + 1/m) as its standard error; with two spreads √(s²/n + t²/m), and the
    degrees of freedom of Welch and Satterthwaite."""
    mean, n = float(np.mean(one) - np.mean(other)), min(len(one), len(other))
    if other_spread is None or other_spread == spread:
        error = spread.deviation * np.sqrt(1 / len(one) + 1 / len(other)) if spread.freedom else np.nan
        return Effect(mean, float(error), spread.freedom, n)
    if not (spread.freedom and other_spread.freedom):
        return Effect(mean, np.nan, 0, n)
    parts = [s.deviation**2 / len(cell) for s, cell in ((spread, one), (other_spread, other))]
    weights = sum(part**2 / s.freedom for part, s in zip(parts, (spread, other_spread), strict=True))
    freedom = sum(parts) ** 2 / weights if weights else spread.freedom + other_spread.freedom
    return Effect(mean, float(np.sqrt(sum(parts))), freedom, n)


def paired_difference(differences: np.ndarray) -> Effect:
    """The mean of differences by seed, with their own deviation over √n as its standard error."""
    n = len(differences)
    error = float(np.std(differences, ddof=1) / np.sqrt(n)) if n > 1 else np.nan
    return Effect(float(np.mean(differences)), error, n - 1, n)


def seeds_correlate(pairs: Sequence[tuple[np.ndarray, np.ndarray]], level: float = 0.05) -> bool:
    """Whether two methods are high and low with the same seeds: the correlation of what is left of their values once
    each cell's mean is taken off, tested one-sided over all cells that both have. Each cell costs a degree of
    freedom, and the correlation one more."""
    one, other = (np.concatenate([cell - np.mean(cell) for cell in side]) for side in zip(*pairs, strict=True))
    freedom = len(one) - len(pairs) - 1
    if freedom < 1 or not one.any() or not other.any():
        return False
    r = float(one @ other / np.sqrt((one @ one) * (other @ other)))
    return bool(stats.t.sf(r * np.sqrt(freedom / max(1 - r**2, 1e-300)), freedom) < level)


def holm(p_values: Sequence[float]) -> np.ndarray:
    """p-values of a family, adjusted: the k-th smallest of m times m − k + 1, never below the one before."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order]))
    return adjusted


def sign_flip(differences: np.ndarray) -> float:
    """Exact two-sided p-value of no difference: the share of the 2ⁿ ways to flip signs whose sum is as far from 0."""
    differences = np.asarray(differences, dtype=float)
    if len(differences) > MOST_FLIPPED:
        raise ValueError(f"{len(differences)} pairs have too many ways to flip signs; at most {MOST_FLIPPED}")
    sums = np.array(list(product((1.0, -1.0), repeat=len(differences)))) @ differences
    return float((np.abs(sums) >= abs(differences.sum()) * (1 - 1e-12)).mean())


def power_of_all(effects: Sequence[Effect], true: Sequence[float], confidence: float = 0.95) -> float:
    """How probable it is that every interval is above zero if these are the true differences, as if they were
    independent. Comparisons that share a cell are not, which makes the conjunction more probable than this."""
    return float(np.prod([effect.power(size, confidence) for effect, size in zip(effects, true, strict=True)]))


def error_of_difference(deviations: tuple[float, float], n: int) -> float:
    """The standard error of a difference of two means of n values each, from their standard deviations."""
    return float(np.hypot(*deviations) / np.sqrt(n))
