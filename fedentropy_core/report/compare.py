"""One setting turned, everything else as it was: a table with intervals and a plot with error bars, in a line."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedentropy_core.extras import needs
from fedentropy_core.report.figures import use_style
from fedentropy_core.report.frame import ACCURACIES, SETTINGS
from fedentropy_core.report.looks import LOOKS, NAMES, line
from fedentropy_core.report.statistics import Effect, pooled
from fedentropy_core.report.tables import Shown

with needs("report"):
    from matplotlib import pyplot as plt
    from matplotlib.figure import Figure

PLACE = ("dataset", "case")  # cells of one data set and case share a deviation


@dataclass(frozen=True)
class Compared:
    """`table`: a row a value, within it a row for whatever else differs; mean, its 95 % interval, and n seeds."""

    table: pd.DataFrame
    by: str
    measure: str

    def _repr_html_(self) -> str:
        return Shown(self.table.round(2))._repr_html_()

    def figure(self) -> Figure:
        """The means with their intervals, a line for whatever else differs."""
        use_style()
        figure, axes = plt.subplots(figsize=(6.0, 3.2))
        others = [name for name in self.table if name not in (self.by, "n", "mean", "low", "high")]
        for key, rows in self.table.groupby(others, sort=False) if others else [((), self.table)]:
            look = line(rows["variant"].iloc[0]) if "variant" in rows and rows["variant"].iloc[0] in LOOKS else {}
            bars = np.abs(rows[["low", "high"]].to_numpy().T - rows["mean"].to_numpy())
            bars[~np.isfinite(bars)] = 0
            places = rows[self.by] if pd.api.types.is_numeric_dtype(rows[self.by]) else rows[self.by].astype(str)
            label = ", ".join(NAMES.get(part, str(part)) for part in key)
            axes.errorbar(places, rows["mean"], bars, marker="o", capsize=3, label=label, **look)
        axes.set(
            xlabel=self.by,
            ylabel=ACCURACIES.get(self.measure, self.measure.replace("_", " ")),
            title="mean and 95 % interval over seeds",
        )
        if others:
            axes.legend(frameon=False)
        if _spans_decades(self.table[self.by]):
            axes.set_xscale("log")
        figure.tight_layout()
        return figure


def compare(frame: pd.DataFrame, by: str, measure: str = "last_hundred") -> Compared:
    """How a measure goes with a setting. Whatever else differs between the runs, but for seeds, makes rows apart.

    Intervals are Student's, with the deviation pooled over the cells of a data set and case.
    """
    if by not in frame:
        raise ValueError(f"by must be a column of the frame, such as {', '.join(SETTINGS[:6])}; got {by!r}")
    if measure not in frame or not pd.api.types.is_numeric_dtype(frame[measure]):
        raise ValueError(f"measure must be a column of numbers, such as last_hundred; got {measure!r}")
    others = [name for name in _differing(frame) if name != by]
    spreads = {place: pooled(_cells(rows, [*others, by], measure)) for place, rows in frame.groupby(list(PLACE))}
    rows = []
    for key, runs in frame.groupby([*others, by], sort=True, dropna=False):
        values, spread = runs[measure].to_numpy(), spreads[tuple(runs[list(PLACE)].iloc[0])]
        effect = Effect(values.mean(), spread.deviation / np.sqrt(len(values)), spread.freedom, len(values))
        rows.append((*key, effect.mean, *effect.interval(), len(values)))
    return Compared(pd.DataFrame(rows, columns=[*others, by, "mean", "low", "high", "n"]), by, measure)


def _differing(frame: pd.DataFrame) -> list[str]:
    """The settings in which the runs are not all alike, with the variant for what makes it up."""
    made_of = {"method", "entropy", "selection", "pools_only"}
    names = ["variant", *(name for name in SETTINGS if name != "seed" and name not in made_of)]
    return [name for name in names if frame[name].nunique(dropna=False) > 1]


def _cells(frame: pd.DataFrame, by: Sequence[str], measure: str) -> list[np.ndarray]:
    return [rows[measure].to_numpy() for _, rows in frame.groupby(list(by), dropna=False)]


def _spans_decades(values: pd.Series) -> bool:
    numbers = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    return numbers and values.min() > 0 and values.max() / values.min() >= 50
