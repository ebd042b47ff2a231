"""A forest plot: differences with their intervals, beside those that somebody else reported."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedentropy_core.extras import needs
from fedentropy_core.report.figures import use_style

with needs("report"):
    import matplotlib as mpl
    from matplotlib import pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# No variant's colours; ours are filled where the interval is on one side of zero, which is seen without colour too.
OURS, REPORTED = "#1a1a1a", "#aa3377"
ROW_HEIGHT = 0.21  # inches


def forest(rows: pd.DataFrame, panels: Sequence[str], xlabel: str, note: str) -> Figure:
    """A panel a data set, a block a `group`, a line a `label`: our `mean` from `low` to `high`, and `reported` ± twice
    its `error`. A row without numbers says what it lacks."""
    use_style()
    blocks = list(dict.fromkeys(rows["group"]))
    labels = {group: list(dict.fromkeys(rows.loc[rows["group"] == group, "label"])) for group in blocks}
    lines = sum(len(names) + 1 for names in labels.values())
    size = (3.9 * max(len(panels), 2), ROW_HEIGHT * lines + 1.2)
    figure, grid = plt.subplots(1, len(panels), figsize=size, sharey=True, squeeze=False)
    for axes, panel in zip(grid[0], panels, strict=True):
        _panel(axes, rows[rows["panel"] == panel], labels)
        axes.set(title=panel, xlabel=xlabel)
    grid[0, 0].set_ylim(lines - 0.5, -0.6)
    _legend(figure, note)
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, labels: dict[str, list[str]]) -> None:
    place, ticks, names = 0, [], []
    axes.axvline(0, color="0.3", linewidth=0.9)
    for group, members in labels.items():
        axes.text(0.01, place, group, transform=axes.get_yaxis_transform(), weight="bold", va="center", fontsize=8)
        place += 1
        for label in members:
            found = rows[(rows["group"] == group) & (rows["label"] == label)]
            for row in found.itertuples():
                _line(axes, place, row)
            ticks, names, place = [*ticks, place], [*names, label], place + 1
    axes.set_yticks(ticks, names)
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.08)
    axes.tick_params(axis="y", labelsize=8)


def _line(axes: Axes, place: int, row: object) -> None:
    if np.isnan(row.mean):
        axes.text(0, place, f" {row.remark or 'no runs'}", va="center", fontsize=7, color="0.4", clip_on=True)
    else:
        known = np.isfinite(row.low)
        clear = known and (row.low > 0 or row.high < 0)
        if known:
            axes.plot([row.low, row.high], [place, place], color=OURS, linewidth=1.6, solid_capstyle="butt")
        axes.plot(row.mean, place, "o", markersize=5.5, color=OURS, markerfacecolor=OURS if clear else "white")
    if not np.isnan(row.reported):
        ends = row.reported - 2 * row.error, row.reported + 2 * row.error
        axes.plot(ends, [place + 0.28] * 2, color=REPORTED, linewidth=0.8)
        axes.plot(row.reported, place + 0.28, "D", markersize=3.5, color=REPORTED, markerfacecolor="white")


def _legend(figure: Figure, note: str) -> None:
    def mark(**look: object) -> mpl.lines.Line2D:
        return mpl.lines.Line2D([], [], **look)

    handles = [
        mark(color=OURS, marker="o", label="ours, interval clear of zero"),
        mark(color=OURS, marker="o", markerfacecolor="white", label="ours, interval with zero, or one seed"),
        mark(
            color=REPORTED, marker="D", markersize=4, markerfacecolor="white", linewidth=0.8, label="the paper ± 2 s.e."
        ),
    ]
    figure.tight_layout()
    figure.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.01), ncols=3, frameon=False, title=note,
        title_fontsize=8,
    )  # fmt: skip
