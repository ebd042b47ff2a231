"""One function a figure. The same colour for a method everywhere; line styles tell them apart in grey."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fedentropy_core.extras import needs
from fedentropy_core.files import atomic_write, project_root
from fedentropy_core.report.frame import cell, same_seeds
from fedentropy_core.report.looks import COLOURS, DATASET_NAMES, NAMES, line
from fedentropy_core.report.source import Source

with needs("report"):
    import matplotlib as mpl
    import seaborn as sns
    from matplotlib import pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What an axis says of a record's column, and by what the column is multiplied for it.
AXES = {"accuracy": ("test accuracy (%)", 100), "entropy_before": ("entropy of the chosen group", 1)}
CASES = (1, 2, 3)
WINDOW = 20  # rounds of a moving average

Reported = Mapping[tuple[str, int, str], float]  # somebody else's final accuracy of a data set, case and variant


def use_style() -> None:
    """The look of every figure; DejaVu Sans comes with matplotlib, so pictures are the same everywhere."""
    sns.set_theme(style="whitegrid", context="paper")
    mpl.rcParams.update(
        {
            "font.family": "DejaVu Sans",
            "figure.dpi": 100,
            "savefig.dpi": 200,
            "svg.hashsalt": "fedentropy",
            "pdf.fonttype": 42,
            "axes.titlesize": 9,
            "axes.labelsize": 9,
            "legend.fontsize": 8,
            "grid.linewidth": 0.5,
        }
    )


def save(figure: Figure, name: str, folder: Path | str | None, source: Source | str) -> None:
    """PDF and PNG that say what made them, without dates or versions, so that the same picture is the same file."""
    folder = Path(folder) if folder is not None else project_root() / "figures"
    for kind, metadata in (
        ("pdf", {"CreationDate": None, "Creator": None, "Producer": None, "Subject": str(source)}),
        ("png", {"Software": None, "Description": str(source)}),
    ):
        with atomic_write(folder / f"{name}.{kind}") as file:
            figure.savefig(file, format=kind, metadata=metadata, bbox_inches="tight")


def convergence(
    runs: pd.DataFrame,
    datasets: Sequence[str],
    variants: Sequence[str],
    cases: Sequence[int] = CASES,
    column: str = "accuracy",
    reported: Reported | None = None,
) -> Figure:
    """Test accuracy, or another column, by round: a row a data set, a column a case; mean and range over seeds.

    `reported` accuracies are marked at the right edge. A data set without any run has no row, a variant without any run
    no entry in the legend; the note names the former. Seeds differ, most in case 3, so a panel has only those that all
    of its variants have.
    """
    runs = same_seeds(runs, variants)
    figure, grid, shown, drawn = _panels(runs, datasets, variants, cases)
    for row, dataset in zip(grid, shown, strict=True):
        for axes, case in zip(row, cases, strict=True):
            _curves(axes, runs, dataset, case, drawn, column)
            _mark(axes, {v: (reported or {}).get((dataset, case, v)) for v in drawn})
            axes.set_title(_panel_title(runs, dataset, case))
        row[0].set_ylabel(AXES[column][0])
    for axes in grid[-1]:
        axes.set_xlabel("round")
    note = f"{WINDOW}-round moving average, mean over seeds, band: their range; {_study(runs, datasets, shown)}"
    if reported:
        note += "; marks at the right: the paper's final accuracies"
    if runs["diverged"].any():
        note += "; a curve that ends early: a run of it diverged"
    _legend_below(figure, drawn, note)
    return figure


def accuracy_by_upload(runs: pd.DataFrame, datasets: Sequence[str], variants: Sequence[str]) -> Figure:
    """Test accuracy against GB uploaded so far, mean over the seeds that all variants have; moving averages."""
    runs = same_seeds(runs, variants)
    figure, grid, shown, drawn = _panels(runs, datasets, variants, CASES)
    for row, dataset in zip(grid, shown, strict=True):
        for axes, case in zip(row, CASES, strict=True):
            for variant in drawn:
                records = cell(runs, dataset, case, variant)["record"]
                if len(records):
                    uploaded = _by_round(records, "bytes_up").cumsum().mean(axis=1) / 1e9
                    accuracy = 100 * _smooth(_by_round(records, "accuracy")).mean(axis=1)
                    axes.plot(uploaded, accuracy, **line(variant))
            axes.set_title(_panel_title(runs, dataset, case))
        row[0].set_ylabel(AXES["accuracy"][0])
    for axes in grid[-1]:
        axes.set_xlabel("GB uploaded")
    _legend_below(figure, drawn, f"{WINDOW}-round moving average, mean over seeds; {_study(runs, datasets, shown)}")
    return figure


def _panels(
    runs: pd.DataFrame, datasets: Sequence[str], variants: Sequence[str], cases: Sequence[int]
) -> tuple[Figure, np.ndarray, Sequence[str], list[str]]:
    """A row for each data set with a run, all of them where there is none; and the variants with a run."""
    use_style()
    there = runs[runs["case"].isin(cases) & runs["dataset"].isin(datasets)]
    shown = [dataset for dataset in datasets if dataset in set(there["dataset"])] or list(datasets)
    drawn = [variant for variant in variants if variant in set(there["variant"])]
    size = (max(3.3 * len(cases), 6.5), max(2.4 * len(shown) + 0.6, 3.6))
    figure, grid = plt.subplots(len(shown), len(cases), figsize=size, squeeze=False, sharex="col")
    return figure, grid, shown, drawn


def _study(runs: pd.DataFrame, datasets: Sequence[str], shown: Sequence[str]) -> str:
    missing = ", ".join(DATASET_NAMES[dataset] for dataset in datasets if dataset not in shown)
    return f"study “{runs.attrs.get('study', 'custom')}”" + (f"; no runs of {missing}" if missing else "")


def _panel_title(runs: pd.DataFrame, dataset: str, case: int) -> str:
    """What is shown, and of how many seeds; all variants of a panel have the same."""
    seeds = runs.loc[(runs["dataset"] == dataset) & (runs["case"] == case), "seed"].nunique()
    counted = f" ({seeds} {'seed' if seeds == 1 else 'seeds'})" if seeds else ""
    return f"{DATASET_NAMES[dataset]}, case {case}{counted}"


def _curves(axes: Axes, runs: pd.DataFrame, dataset: str, case: int, variants: Sequence[str], column: str) -> None:
    unit = AXES[column][1]
    for variant in variants:
        records = cell(runs, dataset, case, variant)["record"]
        if not len(records):
            continue
        smooth = unit * _smooth(_by_round(records, column))
        axes.plot(smooth.index, smooth.mean(axis=1), **line(variant))
        if len(records) > 1:
            low, high = smooth.min(axis=1), smooth.max(axis=1)
            axes.fill_between(smooth.index, low, high, color=COLOURS[variant], alpha=0.13, linewidth=0)
    if not axes.lines:
        _nothing(axes)
    axes.margins(x=0.01)


def _by_round(records: Sequence, column: str) -> pd.DataFrame:
    """A column a seed. It ends where the first run ends, so that a mean is of the same seeds throughout."""
    return pd.DataFrame({r.config.seed: r.rounds.set_index("round")[column] for r in records}).dropna()


def _smooth(curves: pd.DataFrame) -> pd.DataFrame:
    return curves.rolling(WINDOW, min_periods=1).mean()


def _mark(axes: Axes, values: Mapping[str, float | None]) -> None:
    """A triangle just outside the right edge for each value there is; one that would hide the last stands beside it."""
    low, high = axes.get_ylim()
    column, last = 0, -np.inf
    for variant, value in sorted(((v, x) for v, x in values.items() if x is not None), key=lambda item: item[1]):
        column = column + 1 if value - last < 0.04 * (high - low) else 0
        last = value
        axes.plot(
            1.02 + 0.03 * column, value, marker="<", markersize=6, color=COLOURS[variant], markeredgecolor="0.2",
            markeredgewidth=0.5, transform=axes.get_yaxis_transform(), clip_on=False, zorder=5,
        )  # fmt: skip


def _nothing(axes: Axes) -> None:
    axes.text(0.5, 0.5, "no runs recorded", ha="center", va="center", transform=axes.transAxes, color="0.4")
    axes.set_yticks([])
    axes.grid(False)


def _legend_below(figure: Figure, variants: Sequence[str], note: str) -> None:
    handles = [mpl.lines.Line2D([], [], label=NAMES[variant], **line(variant)) for variant in variants]
    figure.tight_layout()
    # Five names fit under three panels, three under one; eight are four pairs, each pair in a column.
    wide = figure.get_figwidth() > 7
    columns = 4 if len(variants) > 5 and wide else len(variants) if wide else 2
    figure.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.005),
        ncols=max(columns, 1),
        frameon=False,
        handlelength=3.2,
        title=note,
        title_fontsize=8,
    )


def label_distribution(counts: dict[tuple[str, int | str], np.ndarray]) -> Figure:
    """Figure 5: for each (data set, case) the images of every label (rows) on every device (columns)."""
    use_style()
    datasets, cases = (list(dict.fromkeys(key[i] for key in counts)) for i in (0, 1))
    figure, grid = plt.subplots(
        len(datasets), len(cases), figsize=(3.4 * len(cases), 1.9 * len(datasets)), squeeze=False, sharex=True
    )
    for row, dataset in zip(grid, datasets, strict=True):
        for axes, case in zip(row, cases, strict=True):
            table = counts[dataset, case]
            share = table / table.sum(axis=1, keepdims=True)
            picture = axes.imshow(share.T, aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
            axes.set_title(f"{DATASET_NAMES[dataset]}, case {case}")
            axes.grid(False)
            step = 1 if table.shape[1] <= 10 else 5
            axes.set_yticks(range(0, table.shape[1], step))
            axes.tick_params(labelsize=7)
        row[0].set_ylabel("label")
    for axes in grid[-1]:
        axes.set_xlabel("device")
    figure.tight_layout()
    figure.colorbar(picture, ax=grid, label="share of the device's images", fraction=0.02, pad=0.02)
    return figure
