"""How the judgment's group compares with other groups, as a figure."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedentropy_core.extras import needs
from fedentropy_core.paper.played import PlayedRound
from fedentropy_core.report.figures import use_style
from fedentropy_core.report.groups import all_groups
from fedentropy_core.report.looks import COLOURS

with needs("report"):
    from matplotlib import pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GROUP_LOOKS = {
    "all chosen": {"color": COLOURS["fedavg"], "marker": "s"},
    "random": {"color": "#cc79a7", "marker": "x"},
    "judgment, soft labels": {"color": COLOURS["fedavg+entropy"], "marker": "o"},
    "best group, soft labels": {"color": "#000000", "marker": "D"},
    "judgment, true labels": {"color": "#56b4e9", "marker": "v"},
    "best group, true labels": {"color": "#0072b2", "marker": "^"},
}


def judgment_quality(played: Sequence[PlayedRound], rounds: pd.DataFrame, data: str) -> Figure:
    """A column a case. Top: every group of the last round (first seed). Below: groups compared over all rounds.

    `data` names the data set in the figure.
    """
    use_style()
    cases, looked_at = list(dict.fromkeys(r.case for r in played)), max(r.round for r in played)
    figure, grid = plt.subplots(
        3, len(cases), figsize=(3.5 * len(cases), 7.6), squeeze=False, height_ratios=(1.15, 1, 1)
    )
    everyone = rounds[rounds["group"] == "all chosen"].set_index(["case", "seed", "round"])["accuracy"]
    for column, case in zip(grid.T, cases, strict=True):
        example = next(r for r in played if r.case == case and r.round == looked_at)
        _every_group(column[0], example, rounds)
        column[0].set_title(f"case {case}, all groups in round {looked_at:,}")
        here = rounds[rounds["case"] == case]
        index = pd.MultiIndex.from_frame(here[["case", "seed", "round"]])
        points = 100 * (here["accuracy"].to_numpy() - everyone.loc[index].to_numpy())
        _spread(column[1], here.assign(value=here["true_entropy"]))
        column[1].set(title=f"case {case}, all rounds", xlabel="entropy of the true labels (nats)")
        _spread(column[2], here.assign(value=points)[here["group"] != "all chosen"])
        column[2].axvline(0, color="0.3", linewidth=0.8)
        column[2].set(title=f"case {case}, all rounds", xlabel="points of accuracy over all chosen")
    for row in grid[1:]:
        for axes in row[1:]:
            axes.set_yticklabels([])
    grid[0, 0].set_ylabel("groups with less entropy (%)")
    figure.tight_layout()
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=len(labels),
        frameon=False,
        markerscale=0.7,
        title=f"{data[0].upper()}{data[1:]}; all rounds: mean (marker) and the middle 80 % of rounds (line)",
        title_fontsize=8,
    )
    return figure


def _every_group(axes: Axes, played: PlayedRound, rounds: pd.DataFrame) -> None:
    """The share of groups below each entropy of soft labels, and where four of the groups stand."""
    entropies = np.sort(all_groups(played.soft_labels, played.counts.sum(axis=1)).entropies)
    axes.plot(entropies, 100 * np.arange(len(entropies)) / len(entropies), color="0.45", linewidth=1.2)
    where = (rounds["case"] == played.case) & (rounds["seed"] == played.seed) & (rounds["round"] == played.round)
    found = rounds[where].set_index("group")["soft_entropy"]
    names = {
        "all chosen": "all chosen",
        "random": "random drop (mean)",
        "judgment, soft labels": "judgment",
        "best group, soft labels": "best group",
    }
    for name, label in names.items():
        height = 100 * np.searchsorted(entropies, found[name] - 1e-12) / len(entropies)
        ring = {"markersize": 11, "markerfacecolor": "none"} if label == "best group" else {"markersize": 6}
        axes.plot(found[name], height, linestyle="none", label=label, **GROUP_LOOKS[name] | ring)
    axes.set(xlabel="entropy of the soft labels (nats)", xlim=(entropies[len(entropies) // 2], None), ylim=(48, 104))


def _spread(axes: Axes, rows: pd.DataFrame) -> None:
    """For each group the mean over rounds, and a line over the middle 80 % of them."""
    names = list(dict.fromkeys(rows["group"]))
    for height, name in enumerate(reversed(names)):
        values = rows.loc[rows["group"] == name, "value"]
        low, high = values.quantile([0.1, 0.9])
        axes.plot([low, high], [height, height], color=GROUP_LOOKS[name]["color"], linewidth=1.4)
        axes.plot(values.mean(), height, linestyle="none", markersize=6, **GROUP_LOOKS[name])
    axes.set_yticks(range(len(names)), list(reversed(names)))
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(axis="y", visible=False)
