"""The figure of what a round costs as it grows."""

import statistics

import numpy as np

from fedentropy_core.bench.scale import line, shares, value
from fedentropy_core.extras import needs
from fedentropy_core.report.figures import use_style

with needs("report"):
    from matplotlib import pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AXES = {"cohort": "devices in the cohort", "batch": "batch size", "threads": "threads", "runs": "runs side by side"}
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"


def scale_figure(report: dict) -> Figure:
    """A column an axis; rows: time a round, share of the peaks, peak memory. All but the cohort have 10 devices."""
    use_style()
    axes = report["axes"]
    figure, grid = plt.subplots(3, len(axes), figsize=(2.6 * len(axes), 6.2), sharex="col", squeeze=False)
    for column, (axis, series) in zip(grid.T, axes.items(), strict=True):
        at = [value(axis, entry) for entry in series]
        _time(column[0], axis, at, series)
        _shares(column[1], at, series)
        column[2].plot(at, [entry["peak_memory_mb"] for entry in series], "o-", color=BLUE)
        column[2].set_ylim(0, 1.15 * max(entry["peak_memory_mb"] for entry in series))
        _ticks(column[2], axis, at)
    for row, label in zip(grid, ("seconds a round", "share of the peak (%)", "peak memory (MB)"), strict=True):
        row[0].set_ylabel(label)
    figure.align_ylabels(grid[:, 0])
    figure.tight_layout()
    _legend_below(figure, report)
    return figure


def _time(axes: Axes, axis: str, at: list[int], series: list[dict]) -> None:
    seconds = [entry["seconds"] for entry in series]
    medians = list(map(statistics.median, seconds))
    below = [m - min(s) for m, s in zip(medians, seconds, strict=True)]
    above = [max(s) - m for m, s in zip(medians, seconds, strict=True)]
    axes.errorbar(at, medians, (below, above), fmt="o" if axis == "cohort" else "o-", color=BLUE, capsize=2)
    cpu = [statistics.median(entry["cpu_seconds"]) for entry in series]
    axes.plot(at, cpu, "^:", color=GREEN)
    if axis == "cohort":
        start, slope, _ = line(at, medians)
        sizes = np.geomspace(at[0], at[-1])
        axes.plot(sizes, start + slope * sizes, color="0.5", linewidth=1, zorder=0)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    else:
        axes.set_ylim(0, 1.15 * max(map(max, [*seconds, cpu])))


def _shares(axes: Axes, at: list[int], series: list[dict]) -> None:
    fma, gemm = zip(*map(shares, series), strict=True)
    if None not in fma:
        axes.plot(at, [100 * share for share in fma], "o-", color=BLUE)
    axes.plot(at, [100 * share for share in gemm], "s--", color=ORANGE)
    axes.set_ylim(0, 115 * max(gemm))


def _ticks(axes: Axes, axis: str, at: list[int]) -> None:
    """The settings themselves, on a scale on which they stand apart."""
    if axis != "runs":
        axes.set_xscale("log", base=10 if axis == "cohort" else 2)
    axes.minorticks_off()
    axes.set_xticks(at, [f"{setting:,}" for setting in at])
    axes.set_xlabel(AXES[axis])
    axes.margins(x=0.12)


def _legend_below(figure: Figure, report: dict) -> None:
    handles = [
        plt.Line2D([], [], color=BLUE, marker="o", label="time; share of bare fused multiply-adds; memory"),
        plt.Line2D([], [], color=GREEN, marker="^", linestyle=":", label="CPU seconds of all threads"),
        plt.Line2D([], [], color=ORANGE, marker="s", linestyle="--", label="share of PyTorch's matrix product"),
        plt.Line2D([], [], color="0.5", linewidth=1, label="line fitted to the cohorts' times"),
    ]
    machine = report["machine"]
    where = f"{machine['processor']}, {machine['cores']} cores, load {machine['load_before']:g} before"
    note = f"{where}; bars: fastest and slowest round"
    figure.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.005), ncols=2, frameon=False, title=note)
