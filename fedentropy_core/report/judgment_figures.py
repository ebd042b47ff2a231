"""Figures of the judgment: its steps, and how its group compares with other groups."""

from collections.abc import Sequence

import numpy as np

from fedentropy_core.extras import needs
from fedentropy_core.judgment import Judgment
from fedentropy_core.report.figures import use_style
from fedentropy_core.report.looks import COLOURS

with needs("report"):
    from matplotlib import pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KEPT, BEFORE = COLOURS["fedavg+entropy"], "0.6"


def judgment_steps(
    soft_labels: np.ndarray,
    sizes: np.ndarray,
    judgment: Judgment,
    devices: Sequence[int | str] | None = None,
    shown: int | None = None,
) -> Figure:
    """The soft labels, the group's distribution before and after, and the entropy path; after `shown` removals."""
    use_style()
    devices = list(range(len(sizes))) if devices is None else list(devices)
    gone = judgment.removed if shown is None else judgment.removed[:shown]
    figure, (labels, group, path) = plt.subplots(1, 3, figsize=(10.2, 3.0), width_ratios=(1.15, 1.15, 1))
    _soft_labels(labels, np.asarray(soft_labels), devices, gone)
    _group_distribution(group, np.asarray(soft_labels), np.asarray(sizes), gone)
    _entropy_path(path, judgment, devices, len(gone), np.shape(soft_labels)[1])
    figure.tight_layout()
    return figure


def _soft_labels(axes: Axes, soft_labels: np.ndarray, devices: list, gone: Sequence[int]) -> None:
    axes.imshow(soft_labels, aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    axes.grid(False)
    for device in gone:
        axes.axhline(device, color=KEPT, linewidth=1.6)
    axes.set_yticks(range(len(devices)), [f"{d} removed" if k in gone else d for k, d in enumerate(devices)])
    axes.set_xticks(range(soft_labels.shape[1]))
    axes.tick_params(labelsize=7)
    axes.set(title="soft labels (dark: 1)", xlabel="label", ylabel="device")


def _group_distribution(axes: Axes, soft_labels: np.ndarray, sizes: np.ndarray, gone: Sequence[int]) -> None:
    kept = [k for k in range(len(sizes)) if k not in gone]
    classes = np.arange(soft_labels.shape[1])
    before, after = (np.average(soft_labels[who], axis=0, weights=sizes[who]) for who in (slice(None), kept))
    axes.bar(classes - 0.2, before, 0.4, color=BEFORE, label=f"all {len(sizes)} chosen", linewidth=0)
    axes.bar(classes + 0.2, after, 0.4, color=KEPT, label=f"{len(kept)} kept", linewidth=0)
    axes.axhline(1 / len(classes), color="black", linewidth=0.8, linestyle=(0, (4, 2)), label="uniform")
    axes.set_xticks(classes)
    axes.tick_params(labelsize=7)
    axes.grid(axis="x", visible=False)
    axes.set(title="distribution of the group", xlabel="label", ylabel="share")
    axes.set_ylim(0, 1.45 * max(before.max(), after.max()))
    axes.legend(loc="upper center", ncols=3, frameon=False, fontsize=7, handlelength=1.4, columnspacing=1.0)


def _entropy_path(axes: Axes, judgment: Judgment, devices: list, shown: int, classes: int) -> None:
    entropies = judgment.entropies[: shown + 1]
    axes.plot(range(len(entropies)), entropies, color=KEPT, marker="o", markersize=4)
    for step, (device, value) in enumerate(zip(judgment.removed[:shown], entropies[1:], strict=True), start=1):
        axes.annotate(f"−{devices[device]}", (step, value), (4, -10), textcoords="offset points", fontsize=7)
    axes.axhline(np.log(classes), color="black", linewidth=0.8, linestyle=(0, (4, 2)))
    axes.annotate("uniform", (0, np.log(classes)), (0, 3), textcoords="offset points", fontsize=7)
    low, high = judgment.entropies[0], np.log(classes)
    room = max(high - low, 0.05)
    axes.set_ylim(low - 0.15 * room, high + 0.15 * room)
    axes.set_xlim(-0.4, max(len(judgment.removed), 1) + 0.7)
    axes.set_xticks(range(max(len(judgment.removed), 1) + 1))
    axes.tick_params(labelsize=7)
    axes.set(title="entropy of the group", xlabel="devices removed", ylabel="entropy (nats)")
