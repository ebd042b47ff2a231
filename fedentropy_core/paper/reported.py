"""The paper's own numbers: its tables, its baselines, its targets."""

from functools import cache

import pandas as pd

from fedentropy_core.files import project_root
from fedentropy_core.report.looks import DATASET_NAMES, NAMES

BASELINES = ("fedavg", "fedprox", "scaffold", "moon")  # the paper's; methods.py may have more

# The paper's targets in percent: Table 2 for CIFAR-10, Table 6 for CIFAR-100. The synthetic set's serve the smoke run.
TARGETS = {
    **{("cifar10", 1): 30.0, ("cifar10", 2): 50.0, ("cifar10", 3): 50.0},
    **{("cifar100", 1): 12.0, ("cifar100", 2): 28.0, ("cifar100", 3): 30.0},
    **{("synthetic", case): 12.0 for case in (1, 2, 3)},
}
ROUNDS_TABLES = {"cifar10": "table2", "cifar100": "table6"}


@cache
def reported() -> pd.DataFrame:
    """The paper's numbers; data sets and methods by our names."""
    frame = pd.read_csv(project_root() / "results" / "reported.csv")
    datasets = {name: key for key, name in DATASET_NAMES.items()}
    methods = {name.replace(" ", ""): key for key, name in NAMES.items()} | {"FedAvg+FedEntropy": "fedavg+entropy"}
    return frame.assign(dataset=frame["dataset"].map(datasets), method=frame["method"].map(methods))


def final_accuracies() -> dict[tuple[str, int, str], float]:
    """The means of its Table 1, by data set, case and variant."""
    table = reported()[reported()["table"] == "table1"]
    return table.set_index(["dataset", "case", "method"])["mean"].to_dict()


def papers_number(table: str, dataset: str, case: int, method: str) -> tuple[float, float] | None:
    """(mean, standard deviation) of a cell of the paper; None where the paper has none."""
    frame = reported()
    match = (frame["table"] == table) & (frame["dataset"] == dataset) & (frame["case"] == case)
    cell = frame[match & (frame["method"] == method)]
    return (float(cell["mean"].iloc[0]), float(cell["std"].iloc[0])) if len(cell) else None
