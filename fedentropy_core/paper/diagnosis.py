"""Where our numbers differ from the paper's: single settings changed, beside the run as specified.

Each is tried on the mirrored runs that it could explain, seed 0.
"""

from math import isnan, nan
from pathlib import Path

import pandas as pd

from fedentropy_core.config import RunConfig
from fedentropy_core.paper.reported import papers_number
from fedentropy_core.paper.study import CAUSES, changed_run, specified_run
from fedentropy_core.report.looks import NAMES
from fedentropy_core.report.records import MEASURES
from fedentropy_core.report.tables import MISSING
from fedentropy_core.runs.files import RunFiles
from fedentropy_core.runs.listing import read_record
from fedentropy_core.runs.record import RunRecord


def diagnosis_table(results: Path | str | None = None) -> pd.DataFrame:
    """A row a run, accuracies in percent: the paper's, and ours as specified and changed, each by three measures."""
    rows = []
    for cause in CAUSES:
        for label, case in cause.runs:
            changed = load_run(changed_run(cause, label, case), "diagnosis", results)
            specified = load_run(specified_run(label, case), "mirrored", results)
            paper = papers_number("table1", "cifar10", case, label) or papers_number("table3", "cifar10", case, label)
            rows.append((cause.name, label, case, *paper, *_accuracies(specified), *_accuracies(changed)))
    columns = ["change", "method", "case", "paper_mean", "paper_std"]
    ours = [f"{which} {name}" for which in ("specified", "changed") for name in (*MEASURES, "diverged")]
    return pd.DataFrame(rows, columns=columns + ours)


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """The table as text; a cell of ours is last ten / last hundred / best round."""
    return pd.DataFrame(
        {
            "change": table["change"],
            "method": table["method"].map(NAMES),
            "case": table["case"],
            "paper": [
                f"{mean:.2f} ± {std:.2f}" for mean, std in zip(table["paper_mean"], table["paper_std"], strict=True)
            ],
            "as specified": [_text(row, "specified") for _, row in table.iterrows()],
            "changed": [_text(row, "changed") for _, row in table.iterrows()],
        }
    )


def load_run(config: RunConfig, study: str, results: Path | str | None) -> RunRecord | None:
    """A study's run; None also for one that diverged at once: there is nothing to report. A bad one is named."""
    record = read_record(RunFiles(config, results, study).csv)
    return record if record is not None and len(record.rounds) else None


def _accuracies(record: RunRecord | None) -> list[float | bool]:
    """By each measure, and whether it diverged."""
    if record is None:
        return [nan] * len(MEASURES) + [False]
    return [of(record) for of in MEASURES.values()] + [record.diverged is not None]


def _text(row: pd.Series, which: str) -> str:
    values = [row[f"{which} {measure}"] for measure in MEASURES]
    end = " (diverged)" if row[f"{which} diverged"] else ""
    return MISSING if isnan(values[0]) else " / ".join(f"{value:.2f}" for value in values) + end
