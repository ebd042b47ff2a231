"""A round of FedEntropy as a diagram (the paper's Figure 1)."""

from fedentropy_core.extras import needs
from fedentropy_core.report.figures import use_style
from fedentropy_core.report.looks import COLOURS

with needs("report"):
    from matplotlib import pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

KEPT, REMOVED = COLOURS["fedavg+entropy"], "#8a8a8a"
PALE = {KEPT: "#fbe6d8", REMOVED: "#ececec"}
# Soft labels of four devices over three labels; the second has what the first has, and goes.
DEVICES = (((0.8, 0.1, 0.1), KEPT), ((0.9, 0.05, 0.05), REMOVED), ((0.1, 0.8, 0.1), KEPT), ((0.1, 0.2, 0.7), KEPT))
LABELS = ("#0072b2", "#56b4e9", "#222222")  # apart by lightness
LEFT, STEP, WIDTH = 3.0, 1.75, 1.5


def round_diagram() -> Figure:
    """Selection, training, soft labels, judgment, upload of the kept, aggregation."""
    use_style()
    figure, axes = plt.subplots(figsize=(7.0, 4.5))
    axes.set(xlim=(0, 10), ylim=(0, 6.4))
    axes.axis("off")
    _server(axes)
    for number, (soft_label, colour) in enumerate(DEVICES):
        _device(axes, LEFT + STEP * number, soft_label, colour, number + 1)
    _pools(axes)
    figure.subplots_adjust(0.005, 0.005, 0.995, 0.995)
    return figure


def _server(axes: Axes) -> None:
    _box(axes, 0.15, 4.65, 9.7, 1.6, "0.35", "#f5f5f5")
    _text(axes, 0.35, 5.95, "server", weight="bold")
    _step(axes, 0.35, 5.25, 1, "select from a pool,\nsend the model")
    judgment = "judgment: leave out the device\nwhose absence raises the entropy most,\nas long as it rises"
    _step(axes, 3.0, 5.25, 4, judgment)
    _step(axes, 7.6, 5.25, 6, "average the\nmodels kept")


def _device(axes: Axes, x: float, soft_label: tuple[float, ...], colour: str, number: int) -> None:
    kept = colour == KEPT
    _box(axes, x, 0.95, WIDTH, 1.75, colour, PALE[colour])
    _text(axes, x + 0.1, 2.47, f"device {number}", weight="bold")
    if number == 1:
        _step(axes, x + 0.1, 1.95, 2, "local\ntraining")
    else:
        _text(axes, x + 0.1, 1.95, "local\ntraining")
    start = x + 0.1
    for share, shade in zip(soft_label, LABELS, strict=True):
        axes.add_patch(Rectangle((start, 1.3), share * (WIDTH - 0.2), 0.26, color=shade, linewidth=0))
        start += share * (WIDTH - 0.2)
    _text(axes, x + 0.1, 1.1, "soft label", fontsize=7.5)
    _arrow(axes, (x + 0.4, 2.75), (x + 0.4, 4.6), "0.25", dashed=True)
    if kept:
        _arrow(axes, (x + 1.1, 2.75), (x + 1.1, 4.6), KEPT, wide=True)
    else:
        _text(axes, x + 0.62, 3.3, "no\nupload", color="0.3")
    if number == 1:
        _step(axes, 0.35, 3.95, 3, "soft labels: the shares\nof the labels, by the\nlocal model (dashed)")
        _step(axes, 0.35, 2.85, 5, "models, from kept\ndevices only (solid)", KEPT)


def _pools(axes: Axes) -> None:
    _box(axes, 0.15, 0.95, 2.35, 0.55, KEPT, PALE[KEPT])
    _text(axes, 0.3, 1.225, "positive pool: kept")
    _box(axes, 0.15, 0.2, 2.35, 0.55, REMOVED, PALE[REMOVED])
    _text(axes, 0.3, 0.475, "negative pool: left out")
    _arrow(axes, (0.2, 1.6), (0.2, 4.6), "0.25")
    _text(axes, 0.35, 1.98, "next draw: positive\nwith probability ε")
    _text(axes, LEFT, 0.475, "after the judgment every device goes to the pool of its colour", color="0.25")


def _step(axes: Axes, x: float, y: float, number: int, text: str, colour: str = "black") -> None:
    axes.text(
        x + 0.13, y, str(number), ha="center", va="center", fontsize=8, color="white", weight="bold",
        bbox={"boxstyle": "circle,pad=0.2", "facecolor": colour, "linewidth": 0},
    )  # fmt: skip
    _text(axes, x + 0.4, y, text)


def _text(axes: Axes, x: float, y: float, text: str, **look: object) -> None:
    axes.text(x, y, text, va="center", linespacing=1.15, **{"fontsize": 8.5} | look)


def _box(axes: Axes, x: float, y: float, width: float, height: float, edge: str, face: str) -> None:
    style = "round,pad=0,rounding_size=0.12"
    axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=style, edgecolor=edge, facecolor=face, linewidth=1.3))


def _arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str, dashed: bool = False,
    wide: bool = False,
) -> None:  # fmt: skip
    look = {"linestyle": (0, (3, 2)) if dashed else "-", "linewidth": 2.4 if wide else 1.2}
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11, color=colour, **look))
