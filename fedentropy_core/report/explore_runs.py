"""The panel of recorded runs."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedentropy_core.config import RunConfig, unusual
from fedentropy_core.extras import needs
from fedentropy_core.report.explore import Panel, _control
from fedentropy_core.report.figures import use_style
from fedentropy_core.report.looks import DATASET_NAMES, NAMES, line
from fedentropy_core.runs.listing import load_records, studies_there
from fedentropy_core.runs.record import RunRecord

with needs("report"):
    import ipywidgets as widgets
    from matplotlib import pyplot as plt
    from matplotlib.figure import Figure

SHOWN_OF_A_RUN = {
    "test accuracy (%)": lambda rounds: 100 * rounds["accuracy"],
    "test loss": lambda rounds: rounds["loss"],
    "models uploaded in a round": lambda rounds: rounds["models_up"],
    "MB uploaded so far": lambda rounds: rounds["bytes_up"].cumsum() / 1e6,
    "entropy before the judgment": lambda rounds: rounds["entropy_before"],
    "entropy after the judgment": lambda rounds: rounds["entropy_after"],
}
NO_RUNS = (
    "No runs are recorded yet. <code>make train</code> trains the runs of the paper, or train one of your own, such as "
    "<code>python -m fedentropy_core run --dataset synthetic --case 2 --rounds 20</code>; then run this cell again."
)


def runs_panel(results: Path | str | None = None, study: str = "paper") -> Panel:
    """Any recorded runs in one picture, of all studies and your own; at first FedAvg and FedEntropy of `study`."""
    runs = {
        name: record
        for folder in studies_there(results)
        for name, record in _named(folder, load_records(folder, results)).items()
    }
    first = [name for name, run in runs.items() if name.startswith(f"{study} ") and _shown_first(run.config)]
    chosen = widgets.SelectMultiple(
        options=list(runs), value=first, rows=min(max(len(runs), 3), 14), layout={"width": "40em"}
    )
    measure = _control(widgets.Dropdown, "shown", options=list(SHOWN_OF_A_RUN))
    window = _control(widgets.IntSlider, "mean over rounds", value=20, min=1, max=100, continuous_update=False)

    def draw() -> tuple[Figure | None, str]:
        if not runs:
            return None, NO_RUNS
        if not chosen.value:
            return None, "Choose runs in the list; Ctrl or ⌘ adds one, Shift a range."
        picked = {name: runs[name] for name in chosen.value}
        return _runs_picture(picked, measure.value, window.value), _runs_table(picked)

    return Panel("recorded runs", [chosen, widgets.HBox([measure, window])], draw).follow(chosen, measure, window)


def _named(folder: str, records: Sequence[RunRecord]) -> dict[str, RunRecord]:
    """A name for each run; one of no profile says where it differs from the paper, and which file it is."""
    return {_name(folder, record): record for record in records}


def _name(folder: str, record: RunRecord) -> str:
    c = record.config
    case = c.case if isinstance(c.case, str) else f"case {c.case}"
    parts = [folder, DATASET_NAMES[c.dataset], case, NAMES.get(c.label, c.label), f"seed {c.seed}"]
    if c.profile == "custom":
        parts += [f"{name} {value}" for name, value in unusual(c).items()] + [record.path.stem[-6:]]
    return " · ".join(parts)


def _shown_first(config: RunConfig) -> bool:
    is_pair = config.label in ("fedavg", "fedavg+entropy")
    return is_pair and (config.dataset, config.case, config.seed) == ("cifar10", 1, 0)


def _runs_picture(runs: dict[str, RunRecord], measure: str, window: int) -> Figure:
    use_style()
    figure, axes = plt.subplots(figsize=(8.6, 3.4))
    for name, run in runs.items():
        values = SHOWN_OF_A_RUN[measure](run.rounds).rolling(window, min_periods=1).mean()
        look = line(run.config.label) if run.config.label in NAMES else {"linewidth": 1.1}
        axes.plot(run.rounds["round"], values, label=name, **look)
    axes.set(xlabel="round", ylabel=measure, title=f"mean over {window} rounds" if window > 1 else None)
    axes.margins(x=0.01)
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.17), frameon=False, handlelength=3.2)
    return figure


def _runs_table(runs: dict[str, RunRecord]) -> str:
    rows = [
        (
            name,
            len(run.rounds),
            f"{run.final_accuracy:.2%}",
            f"{run.best_accuracy:.2%}",
            f"{run.rounds['models_up'].mean():.1f}",
            f"{run.rounds['bytes_up'].sum() / 1e6:,.0f}",
        )
        for name, run in runs.items()
    ]
    columns = ["run", "rounds", "last ten", "best round", "models a round", "MB uploaded"]
    return pd.DataFrame(rows, columns=columns).to_html(index=False, border=0)
