"""Where our numbers differ from the paper's: single settings changed, beside the run as specified.

Each is tried on the mirrored runs that it could explain, seed 0.
"""

from math import isnan, nan

import pandas as pd

from fedentropy_core.paper.reported import papers_number
from fedentropy_core.paper.study import CAUSES, changed_run, find_run, specified_run
from fedentropy_core.paper.tables import MEASURES
from fedentropy_core.report.looks import NAMES
from fedentropy_core.report.tables import MISSING, Shown


def diagnosis_table(mirrored: pd.DataFrame, diagnosis: pd.DataFrame) -> pd.DataFrame:
    """A row a run, accuracies in percent: the paper's, and ours as specified and changed, each by three measures."""
    rows = []
    for cause in CAUSES:
        for label, case in cause.runs:
            changed = find_run(diagnosis, changed_run(cause, label, case))
            specified = find_run(mirrored, specified_run(label, case))
            paper = papers_number("table1", "cifar10", case, label) or papers_number("table3", "cifar10", case, label)
            rows.append((cause.name, label, case, *paper, *_accuracies(specified), *_accuracies(changed)))
    columns = ["change", "variant", "case", "paper_mean", "paper_std"]
    ours = [f"{which} {name}" for which in ("specified", "changed") for name in (*MEASURES, "diverged")]
    return pd.DataFrame(rows, columns=columns + ours)


def shown(table: pd.DataFrame) -> Shown:
    """The table as text; a cell of ours is last ten / last hundred / best round."""
    text = pd.DataFrame(
        {
            "change": table["change"],
            "method": table["variant"].map(NAMES),
            "case": table["case"],
            "paper": [
                f"{mean:.2f} ± {std:.2f}" for mean, std in zip(table["paper_mean"], table["paper_std"], strict=True)
            ],
            "as specified": [_text(row, "specified") for _, row in table.iterrows()],
            "changed": [_text(row, "changed") for _, row in table.iterrows()],
        }
    )
    return Shown(text)


def _accuracies(run: pd.Series | None) -> list[float | bool]:
    """By each measure, and whether it diverged."""
    return [nan] * len(MEASURES) + [False] if run is None else [*run[list(MEASURES)], run["diverged"]]


def _text(row: pd.Series, which: str) -> str:
    values = [row[f"{which} {measure}"] for measure in MEASURES]
    end = " (diverged)" if row[f"{which} diverged"] else ""
    return MISSING if isnan(values[0]) else " / ".join(f"{value:.2f}" for value in values) + end
