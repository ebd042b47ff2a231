"""Where our numbers differ from the paper's: settings in which the paper, the authors' code and this one may differ,
changed one at a time, and two together, beside the run as specified.

Each is tried on the runs that it could explain, seed 0; records are in results/paper/diagnosis.
"""

from dataclasses import dataclass, replace
from math import isnan, nan
from pathlib import Path

import pandas as pd

from fedentropy_core.config import RunConfig, profile_config
from fedentropy_core.paths import results_root
from fedentropy_core.records import RunFiles, RunRecord, load_record
from fedentropy_core.report import MEASURES, MISSING, NAMES, papers_number
from fedentropy_core.study import label_fields

MIDDLE_CASES = (2, 3)  # where seed 0 is above the paper, and SCAFFOLD with FedEntropy below SCAFFOLD


@dataclass(frozen=True)
class Cause:
    """A setting that the authors may have used instead, and the runs (label and case) to try it on."""

    name: str
    fields: dict[str, float | int | str]
    runs: tuple[tuple[str, int], ...]


FEDAVG = tuple(("fedavg", case) for case in MIDDLE_CASES)
CAUSES = (
    Cause("no momentum", {"momentum": 0.0}, (*FEDAVG, ("scaffold", 1), ("scaffold", 2), ("scaffold", 3))),
    # Case 1 is where our numbers are the paper's: a cause of the other cases' level should change little there.
    Cause("no mirroring", {"augment": "none"}, (("fedavg", 1), *FEDAVG, ("scaffold", 2))),
    Cause("neither momentum nor mirroring", {"momentum": 0.0, "augment": "none"}, FEDAVG),
    Cause("batches of 10", {"batch_size": 10}, FEDAVG),
    Cause("authors' shards", {"case": "shards"}, (("fedavg", 2),)),
    # 100 rounds of all devices are as many local trainings as 1,000 rounds of ten, but no c_k is older than a round.
    Cause("all devices each round, 100 rounds", {"fraction": 1.0, "rounds": 100}, (("scaffold", 1),)),
    Cause("one local epoch", {"epochs": 1}, (("scaffold", 1),)),
    Cause(
        "all devices each round, 100 rounds, one local epoch",
        {"fraction": 1.0, "rounds": 100, "epochs": 1},
        (("scaffold", 1),),
    ),
    Cause("without pools", {"selection": "uniform"}, tuple(("scaffold+entropy", case) for case in MIDDLE_CASES)),
    Cause("authors' values", {"selection": "value"}, tuple(("fedavg+entropy", case) for case in MIDDLE_CASES)),
)


def diagnosis_folder(results: Path | str | None = None) -> Path:
    """What `results` is for the runs of the diagnosis."""
    return (Path(results) if results is not None else results_root()) / "paper" / "diagnosis"


def diagnosis_paths(results: Path | str | None = None) -> list[Path]:
    """The CSV files of the diagnosis' finished runs."""
    return sorted(diagnosis_folder(results).rglob("*.csv"))


def diagnosis_runs() -> list[RunConfig]:
    """Every run of the diagnosis."""
    return [_changed(cause, label, case) for cause in CAUSES for label, case in cause.runs]


def diagnosis_table(results: Path | str | None = None) -> pd.DataFrame:
    """A row a run, accuracies in percent: the paper's, and ours as specified and changed, each by three measures."""
    rows = []
    for cause in CAUSES:
        for label, case in cause.runs:
            changed = load_run(_changed(cause, label, case), diagnosis_folder(results))
            specified = load_run(specified_run(label, case), results)
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


def specified_run(label: str, case: int) -> RunConfig:
    """The paper's run on CIFAR-10, seed 0."""
    return profile_config("paper", case=case, **label_fields(label))


def _changed(cause: Cause, label: str, case: int) -> RunConfig:
    return replace(specified_run(label, case), **cause.fields)


def load_run(config: RunConfig, results: Path | str | None) -> RunRecord | None:
    """None also for a run that diverged at once: there is nothing to report."""
    path = RunFiles(config, results).csv
    record = load_record(path) if path.exists() else None
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
