"""One function a figure. The same colour for a method everywhere; line styles tell them apart in grey."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fedentropy_core.extras import needs
from fedentropy_core.files import atomic_write, project_root
from fedentropy_core.report.looks import COLOURS, NAMES, line
from fedentropy_core.report.records import DATASET_NAMES, Records

with needs("report"):
    import matplotlib as mpl
    import seaborn as sns
    from matplotlib import pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What an axis says of a record's column, and by what the column is multiplied for it.
AXES = {"accuracy": ("test accuracy (%)", 100), "entropy_before": ("entropy of the chosen group", 1)}


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


def save(figure: Figure, name: str, folder: Path | str | None = None) -> None:
    """PDF and PNG without dates or versions, so that the same picture is the same file."""
    folder = Path(folder) if folder is not None else project_root() / "figures"
    for kind, metadata in (
        ("pdf", {"CreationDate": None, "Creator": None, "Producer": None}),
        ("png", {"Software": None}),
    ):
        with atomic_write(folder / f"{name}.{kind}") as file:
            figure.savefig(file, format=kind, metadata=metadata, bbox_inches="tight")


def convergence(
    records: Records,
    datasets: Sequence[str],
    methods: Sequence[str],
    cases: Sequence[int] = (1, 2, 3),
    window: int = 20,
    column: str = "accuracy",
) -> Figure:
    """Test accuracy, or another column, by round: a row a data set, a column a case; mean, standard deviation.

    A data set without any run has no row, a method without any run no entry in the legend; the note names the former.
    Seeds differ, most in case 3, so a panel has only those that all of its methods have.
    """
    use_style()
    records = records.paired(methods)
    shown, drawn = _with_runs(records, datasets, methods, cases)
    left_out = [DATASET_NAMES[dataset] for dataset in datasets if dataset not in shown]
    datasets = shown or datasets
    figure, grid = plt.subplots(
        len(datasets),
        len(cases),
        figsize=(max(3.3 * len(cases), 6.5), max(2.4 * len(datasets) + 0.6, 3.6)),
        squeeze=False,
        sharex=True,
    )
    for row, dataset in zip(grid, datasets, strict=True):
        for axes, case in zip(row, cases, strict=True):
            _curves(axes, records, dataset, case, methods, window, column)
            axes.set_title(_panel_title(records, dataset, case, methods))
        row[0].set_ylabel(AXES[column][0])
    for axes in grid[-1]:
        axes.set_xlabel("round")
    note = f"{window}-round moving average, mean over seeds, band: one standard deviation; study “{records.study}”"
    if shown and left_out:
        note += f"; no runs of {', '.join(left_out)}"
    if any(r.diverged for d in shown for case in cases for method in drawn for r in records.of(d, case, method)):
        note += "; where a curve ends early a run of it diverged"
    _legend_below(figure, drawn, note)
    return figure


def _with_runs(
    records: Records, datasets: Sequence[str], methods: Sequence[str], cases: Sequence[int]
) -> tuple[list[str], list[str]]:
    """Those of the data sets and of the methods that have any run."""
    found = {(d, m) for d in datasets for m in methods if any(records.of(d, case, m) for case in cases)}
    return [d for d in datasets if d in {d for d, _ in found}], [m for m in methods if m in {m for _, m in found}]


def _panel_title(records: Records, dataset: str, case: int, methods: Sequence[str]) -> str:
    """What is shown, and of how many seeds; all methods of a panel have the same."""
    seeds = max(len(records.of(dataset, case, method)) for method in methods)
    counted = f" ({seeds} {'seed' if seeds == 1 else 'seeds'})" if seeds else ""
    return f"{DATASET_NAMES[dataset]}, case {case}{counted}"


def _curves(
    axes: Axes, records: Records, dataset: str, case: int, methods: Sequence[str], window: int, column: str
) -> None:
    drawn, unit = 0, AXES[column][1]
    for method in methods:
        runs = records.of(dataset, case, method)
        if not runs:
            continue
        curves = pd.DataFrame({r.config.seed: unit * r.rounds.set_index("round")[column] for r in runs})
        curves = curves.dropna()  # a mean ends where its first run ends, so that it is of the same seeds throughout
        smooth = curves.rolling(window, min_periods=1).mean()
        mean, spread = smooth.mean(axis=1), smooth.std(axis=1)
        axes.plot(mean.index, mean, **line(method))
        if len(runs) > 1:
            axes.fill_between(mean.index, mean - spread, mean + spread, color=COLOURS[method], alpha=0.15, linewidth=0)
        drawn += 1
    if not drawn:
        _nothing(axes)
    axes.margins(x=0.01)


def _nothing(axes: Axes) -> None:
    axes.text(0.5, 0.5, "no runs recorded", ha="center", va="center", transform=axes.transAxes, color="0.4")
    axes.set_yticks([])
    axes.grid(False)


def _legend_below(figure: Figure, methods: Sequence[str], note: str) -> None:
    handles = [mpl.lines.Line2D([], [], label=NAMES[method], **line(method)) for method in methods]
    figure.tight_layout()
    # Five names fit under three panels, three under one; eight are four pairs, each pair in a column.
    columns = 4 if len(methods) > 5 else len(methods) if figure.get_figwidth() > 7 else 3
    figure.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.005),
        ncols=columns,
        frameon=False,
        handlelength=3.2,
        title=note,
        title_fontsize=8,
    )


def accuracy_by_upload(records: Records, datasets: Sequence[str], methods: Sequence[str], window: int = 20) -> Figure:
    """Test accuracy against MB uploaded so far, of the first seed that all methods have; moving averages."""
    use_style()
    records = records.paired(methods)
    cases = (1, 2, 3)
    shown, drawn = _with_runs(records, datasets, methods, cases)
    datasets = shown or datasets
    figure, grid = plt.subplots(
        len(datasets), len(cases), figsize=(3.3 * len(cases), 2.4 * len(datasets) + 0.6), squeeze=False
    )
    for row, dataset in zip(grid, datasets, strict=True):
        for axes, case in zip(row, cases, strict=True):
            runs = {method: records.of(dataset, case, method)[:1] for method in methods}
            for method, (run, *_) in ((m, found) for m, found in runs.items() if found):
                uploaded = run.rounds["bytes_up"].cumsum() / 1e6
                axes.plot(uploaded, 100 * run.rounds["accuracy"].rolling(window, min_periods=1).mean(), **line(method))
            if not any(runs.values()):
                _nothing(axes)
                axes.set_xticks([])
            axes.set_title(f"{DATASET_NAMES[dataset]}, case {case}")
            axes.set_xlabel("MB uploaded")
        row[0].set_ylabel("test accuracy (%)")
    _legend_below(figure, drawn, f"{window}-round moving average, one seed; study “{records.study}”")
    return figure


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
