"""Panels to play with in a notebook: partitions, the judgment, recorded runs.

A control's callback draws a picture into an Image and a sentence into an HTML widget. What a panel stores in a notebook
is the same each time: a short text, its first picture for readers without a live kernel, and a fixed model id.
"""

import base64
import html
import io
import uuid
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from fedentropy_core.config import RunConfig
from fedentropy_core.extras import needs
from fedentropy_core.judgment import RESOLUTION, Judgment, judge
from fedentropy_core.report.figures import use_style
from fedentropy_core.report.groups import Groups, all_groups
from fedentropy_core.report.judgment_figures import judgment_steps
from fedentropy_core.report.looks import DATASET_NAMES
from fedentropy_core.report.partitions import distance, label_counts

with needs("report"):
    import ipywidgets as widgets
    from matplotlib import pyplot as plt
    from matplotlib.figure import Figure

_made: Counter[str] = Counter()


class Panel(widgets.VBox):
    """Controls above a picture and a sentence. `draw` makes both anew; a ValueError of it is shown in their place."""

    def __init__(self, name: str, controls: Sequence[widgets.Widget], draw: Callable[[], tuple[Figure | None, str]]):
        _made[name] += 1
        self.name, self.draw = name, draw
        self.picture = widgets.Image(format="png", layout={"max_width": "100%", "width": "max-content"})
        self.sentence = widgets.HTML()
        model_id = uuid.uuid5(uuid.NAMESPACE_OID, f"{name} {_made[name]}").hex
        super().__init__([*controls, self.sentence, self.picture], model_id=model_id)
        self.refresh()

    def refresh(self, change: object = None) -> None:
        try:
            figure, sentence = self.draw()
        except ValueError as error:
            figure, sentence = None, f"<b>Not possible:</b> {html.escape(str(error))}"
        self.sentence.value = sentence
        self.picture.layout.display = None if figure else "none"
        self.picture.value = _png(figure) if figure else b""

    def follow(self, *controls: widgets.Widget) -> "Panel":
        """Draws anew whenever one of the controls changes."""
        for control in controls:
            control.observe(self.refresh, "value")
        return self

    def __repr__(self) -> str:
        return f"Panel '{self.name}': run the notebook to use its controls."

    def _repr_mimebundle_(self, **kwargs) -> dict:
        bundle = super()._repr_mimebundle_(**kwargs)
        return bundle | {"image/png": base64.b64encode(self.picture.value).decode()} if self.picture.value else bundle


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)
    return buffer.getvalue()


def _control(kind: type[widgets.Widget], description: str, **options) -> widgets.Widget:
    style = {"description_width": "7.5em"}
    return kind(description=description, style=style, **options)


# ------------------------------------------------------------------------------------------------ partitions


def partition_panel() -> Panel:
    """Which labels each device has, for any data set, case, β, number of devices and draw. Needs no data."""
    datasets = [(DATASET_NAMES[name], name) for name in ("cifar10", "cifar100", "cinic10", "synthetic")]
    dataset = _control(widgets.Dropdown, "data", options=datasets)
    cases = [("case 1: one label", 1), ("case 2: two labels", 2), ("case 3: Dirichlet(β)", 3), ("iid", "iid")]
    case = _control(widgets.Dropdown, "partition", options=cases, value=3)
    late = {"continuous_update": False}
    beta = _control(widgets.FloatLogSlider, "β", value=0.1, min=-2, max=2, step=0.1, readout_format=".3f", **late)
    devices = _control(widgets.IntSlider, "devices", value=100, min=5, max=200, **late)
    seed = _control(widgets.IntSlider, "partition seed", value=0, min=0, max=20, **late)

    def draw() -> tuple[Figure, str]:
        beta.disabled = case.value != 3
        draw = {"partition_seed": seed.value, "beta": beta.value}
        counts = label_counts(RunConfig(dataset=dataset.value, case=case.value, devices=devices.value, **draw))
        return _partition_picture(counts), _partition_sentence(counts)

    controls = (dataset, case, beta, devices, seed)
    rows = [widgets.HBox([dataset, case]), widgets.HBox([beta, devices]), seed]
    return Panel("partition", rows, draw).follow(*controls)


def _partition_picture(counts: np.ndarray) -> Figure:
    use_style()
    figure, (shares, sizes) = plt.subplots(2, 1, figsize=(8.6, 4.2), sharex=True, height_ratios=(2, 1))
    share = counts / counts.sum(axis=1, keepdims=True)
    shares.imshow(share.T, aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    shares.grid(False)
    shares.set(ylabel="label", title="share of each label on each device (dark: 1)")
    shares.set_yticks(range(0, counts.shape[1], 1 if counts.shape[1] <= 10 else 2))
    sizes.bar(range(len(counts)), counts.sum(axis=1), width=1.0, color="0.5", edgecolor="white", linewidth=0.3)
    sizes.grid(axis="x", visible=False)
    sizes.set(xlabel="device", ylabel="images", xlim=(-0.5, len(counts) - 0.5))
    figure.align_ylabels()
    figure.tight_layout()
    return figure


def _partition_sentence(counts: np.ndarray) -> str:
    sizes = counts.sum(axis=1)
    return (
        f"Images a device: {sizes.min():,} to {sizes.max():,}, median {np.median(sizes):,.0f}. "
        f"Labels a device: median {np.median((counts > 0).sum(axis=1)):.0f}. "
        f"Mean total-variation distance to all labels: <b>{distance(counts):.2f}</b> (0: iid; "
        f"{1 - 1 / counts.shape[1]:.2f}: one label a device)."
    )


# ------------------------------------------------------------------------------------------------ the judgment

# Soft labels of six devices over four labels, not yet normalised, and sizes.
EXAMPLES: dict[str, tuple[list[list[float]], list[int]]] = {
    "one label three times": ([[1, 0, 0, 0]] * 3 + [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], [500] * 6),
    "two labels each": (
        [[1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 1, 0], [0, 0, 1, 1], [0, 0, 0, 1]],
        [500] * 6,
    ),
    "one big device": (
        [[8, 1, 1, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 1, 1, 1], [1, 0, 0, 1]],
        [3000, 400, 400, 400, 100, 200],
    ),
    "the judgment stops early": (
        [[0, 1, 0, 0], [0, 1, 0, 1], [0, 1, 0, 1], [1, 0, 0, 0], [1, 0, 0, 1], [1, 0, 1, 0]],
        [500] * 6,
    ),
}


def judgment_panel() -> Panel:
    """Soft labels to edit (each row is normalised), and the judgment's removals one by one."""
    labels, sizes = EXAMPLES["one label three times"]
    narrow = {"width": "5em"}
    cells = [[widgets.FloatText(value=v, step=0.1, layout=narrow) for v in row] for row in labels]
    images = [widgets.IntText(value=size, layout={"width": "6em"}) for size in sizes]
    example = _control(widgets.Dropdown, "example", options=list(EXAMPLES), layout={"width": "26em"})
    shown = _control(widgets.IntSlider, "removals", value=1, min=0, max=len(sizes) - 1)
    filling = False  # while an example is put into the grid, its cells do not each draw

    def draw() -> tuple[Figure, str]:
        soft_labels = normalised([[cell.value for cell in row] for row in cells])
        given = np.array([size.value for size in images])
        judgment = judge(soft_labels, given)
        steps = min(shown.value, len(judgment.removed))
        figure = judgment_steps(soft_labels, given, judgment, shown=steps)
        return figure, _judgment_sentence(judgment, steps, all_groups(soft_labels, given))

    head = [f"label {k}" for k in range(len(labels[0]))] + ["images"]
    rows = [_row("", [widgets.Label(text, layout={"width": "6em" if text == "images" else "5em"}) for text in head])]
    rows += [_row(f"device {k}", [*row, size]) for k, (row, size) in enumerate(zip(cells, images, strict=True))]
    panel = Panel("judgment", [example, *rows, shown], draw)

    def edited(change: object = None) -> None:
        if not filling:
            panel.refresh()

    def fill(change: object = None) -> None:
        nonlocal filling
        filling = True
        new_labels, new_sizes = EXAMPLES[example.value]
        for row, values in zip(cells, new_labels, strict=True):
            for cell, value in zip(row, values, strict=True):
                cell.value = value
        for size, value in zip(images, new_sizes, strict=True):
            size.value = value
        shown.value = 1
        filling = False
        panel.refresh()

    for control in [*(cell for row in cells for cell in row), *images, shown]:
        control.observe(edited, "value")
    example.observe(fill, "value")
    return panel


def normalised(rows: Sequence[Sequence[float]]) -> np.ndarray:
    """Each row divided by its sum; a ValueError names a device whose row cannot be."""
    values = np.array(rows, dtype=np.float64)
    for device, row in enumerate(values):
        if not np.isfinite(row).all() or (row < 0).any() or row.sum() == 0:
            raise ValueError(f"device {device} needs numbers from 0 on, at least one of them above 0")
    return values / values.sum(axis=1, keepdims=True)


def _row(name: str, cells: list[widgets.Widget]) -> widgets.HBox:
    return widgets.HBox([widgets.Label(name, layout={"width": "6em"}), *cells])


def _judgment_sentence(judgment: Judgment, steps: int, groups: Groups) -> str:
    entropy = judgment.entropies[steps]
    if steps < len(judgment.removed):
        following = judgment.removed[steps]
        return (
            f"Entropy <b>{entropy:.4f}</b>. Next the judgment removes device {following}, which gives "
            f"{judgment.entropies[steps + 1]:.4f}: move the slider <i>removals</i>."
        )
    best = groups.entropies.max()
    better = f"but devices {_list(groups.best)} alone would have {best:.4f}"
    end = better if best > entropy + RESOLUTION else "and no other group has more"
    return f"Entropy <b>{entropy:.4f}</b> with devices {_list(judgment.kept)} kept. No single removal raises it, {end}."


def _list(devices: Sequence[int]) -> str:
    return ", ".join(map(str, devices))
