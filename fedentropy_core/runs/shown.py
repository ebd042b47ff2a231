"""A record as a reader sees it: a line of text, or a small table and its curve."""

import html
from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from fedentropy_core.config import RunConfig

if TYPE_CHECKING:
    from fedentropy_core.runs.record import RunRecord

WIDTH, HEIGHT, EDGE = 320, 96, 16  # pixels
POINTS = 200  # of the curve


def line(record: "RunRecord") -> str:
    """What it is, how long, how accurate."""
    config = record.config
    case = f"case {config.case}" if isinstance(config.case, int) else config.case
    return f"RunRecord({config.dataset}, {case}, {config.label}, seed {config.seed}: {_outcome(record)})"


def page(record: "RunRecord") -> str:
    """HTML: the settings that are not the default, accuracies, uploads; and test accuracy by round."""
    rows = {**_changed(record.config), "rounds": _outcome(record)}
    if len(record.rounds):
        up = record.rounds["bytes_up"].sum() / 1e6
        rows["accuracy, last ten / last hundred / best round"] = " / ".join(
            f"{100 * share:.2f} %"
            for share in (record.final_accuracy, record.last_hundred_accuracy, record.best_accuracy)
        )
        rows["uploaded"] = f"{record.rounds['models_up'].sum():,} models, {up:,.0f} MB"
    body = "".join(
        f'<tr><td style="text-align: left">{html.escape(name)}</td>'
        f'<td style="text-align: left">{html.escape(str(value))}</td></tr>'
        for name, value in rows.items()
    )
    return f"<table><tbody>{body}</tbody></table>{_curve(record)}"


def _changed(config: RunConfig) -> dict[str, object]:
    """What the run is, and its other settings that are not the default."""
    always = ("dataset", "case", "method", "seed")
    return {f.name: v for f in fields(config) if (v := getattr(config, f.name)) != f.default or f.name in always}


def _outcome(record: "RunRecord") -> str:
    played = f"{len(record.rounds):,} rounds"
    if len(record.rounds):
        played += f", last ten {record.final_accuracy:.2%}"
    return played + (f", diverged in round {record.diverged}" if record.diverged else "")


def _curve(record: "RunRecord") -> str:
    """Test accuracy by round as a drawing of a few hundred points, each the mean of its rounds."""
    accuracy = 100 * record.rounds["accuracy"].to_numpy()
    if len(accuracy) < 2:
        return ""
    values = np.array([part.mean() for part in np.array_split(accuracy, min(POINTS, len(accuracy)))])
    low, high = float(values.min()), float(values.max())
    x = np.linspace(EDGE, WIDTH - EDGE, len(values))
    y = HEIGHT - EDGE - (values - low) / ((high - low) or 1) * (HEIGHT - 2 * EDGE)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    text = 'font-size="10" font-family="sans-serif" fill="currentColor"'
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="test accuracy by round">'
        f'<polyline points="{points}" fill="none" stroke="#d55e00" stroke-width="1.5"/>'
        f'<text x="{EDGE}" y="{EDGE - 5}" {text}>{high:.1f} %</text>'
        f'<text x="{EDGE}" y="{HEIGHT - 4}" {text}>{low:.1f} %</text>'
        f'<text x="{WIDTH - EDGE}" y="{HEIGHT - 4}" text-anchor="end" {text}>round {len(accuracy):,}</text></svg>'
    )
