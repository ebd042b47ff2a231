"""From records to tables: accuracy, rounds and bytes to a target, each beside the paper's number.

A table is made in long form (a row a cell, numbers only) and shown side by side (paper and ours, as text).
A cell whose runs are missing shows "—". Methods side by side are of the same seeds: while some have more seeds than
others, only those that all of them have count.
"""

from collections.abc import Callable, Iterable, Sequence

import pandas as pd

from fedentropy_core.paper.reported import BASELINES, ROUNDS_TABLES, TARGETS, papers_number
from fedentropy_core.paper.study import STUDIES
from fedentropy_core.report.looks import NAMES
from fedentropy_core.report.records import DATASET_NAMES, MEASURES, Records, count_diverged, ten_round_noise
from fedentropy_core.report.tables import MISSING
from fedentropy_core.runs.record import RunRecord


def rounds_to_target(run: RunRecord) -> int | None:
    """The first round at the paper's target or above it; None if none is."""
    return run.rounds_to(TARGETS[run.config.dataset, run.config.case] / 100)


def megabytes_to_target(run: RunRecord) -> float | None:
    """MB uploaded until then: models, SCAFFOLD's controls and soft labels."""
    rounds = rounds_to_target(run)
    return None if rounds is None else float(run.rounds["bytes_up"].head(rounds).sum()) / 1e6


# ------------------------------------------------------------------------------------------------ long tables


def accuracy_table(
    records: Records, table: str, datasets: Sequence[str], methods: Sequence[str], cases: Sequence[int] = (1, 2, 3)
) -> pd.DataFrame:
    """In percent: the mean of the last ten rounds (the paper's measure), of the last hundred, and the best round."""
    return pd.concat(
        _cells(records, table, datasets, methods, cases, of).assign(measure=measure) for measure, of in MEASURES.items()
    )


def seeds_table(records: Records, datasets: Sequence[str], methods: Sequence[str]) -> pd.DataFrame:
    """A row a recorded run: its accuracy in percent, mean of the last ten rounds."""
    rows = [
        (dataset, case, run.config.seed, method, MEASURES["last ten"](run), run.diverged is not None)
        for dataset in datasets
        for case in (1, 2, 3)
        for method in methods
        for run in records.of(dataset, case, method)
    ]
    return pd.DataFrame(rows, columns=["dataset", "case", "seed", "method", "mean", "diverged"])


def rounds_table(records: Records, datasets: Sequence[str], methods: Sequence[str]) -> pd.DataFrame:
    """Rounds to the paper's target, over the seeds that reach it; `reached` counts them."""
    tables = [_cells(records, ROUNDS_TABLES.get(d, ""), [d], methods, (1, 2, 3), rounds_to_target) for d in datasets]
    return pd.concat(tables)


def megabytes_table(records: Records, datasets: Sequence[str], methods: Sequence[str]) -> pd.DataFrame:
    """MB uploaded until the paper's target is reached: models, SCAFFOLD's controls and soft labels."""
    return _cells(records, "", datasets, methods, (1, 2, 3), megabytes_to_target)


def noise_table(records: Records, datasets: Sequence[str], methods: Sequence[str]) -> pd.DataFrame:
    """How much of an accuracy is the choice of its ten rounds: `ten_round_noise`, mean over seeds."""
    return _cells(records, "", datasets, methods, (1, 2, 3), ten_round_noise)


def gains_table(records: Records, datasets: Sequence[str], cases: Sequence[int] = (1, 2, 3)) -> pd.DataFrame:
    """Points of accuracy that FedEntropy adds to each method by each measure, paired by seed."""
    rows = []
    for dataset in datasets:
        for case in cases:
            for measure, of in MEASURES.items():
                for method in BASELINES:
                    pairs = records.pairs(dataset, case, method, f"{method}+entropy")
                    gains = pd.Series([of(after) - of(before) for before, after in pairs], dtype=float)
                    diverged = sum(count_diverged(pair) > 0 for pair in pairs)
                    rows.append((dataset, case, measure, method, gains.mean(), gains.std(), len(gains), diverged))
    columns = ["dataset", "case", "measure", "method", "mean", "std", "seeds", "diverged"]
    return pd.DataFrame(rows, columns=columns)


def _cells(
    records: Records,
    table: str,
    datasets: Iterable[str],
    methods: Sequence[str],
    cases: Iterable[int],
    measure: Callable[[RunRecord], float | None],
) -> pd.DataFrame:
    """`recorded` counts all runs, `seeds` those that are compared, `reached` those of them that have the measure."""
    rows, paired = [], records.paired(methods)
    for dataset in datasets:
        for case in cases:
            for method in methods:
                recorded, runs = (of.of(dataset, case, method) for of in (records, paired))
                values = pd.Series([v for v in map(measure, runs) if v is not None], dtype=float)
                paper = papers_number(table, dataset, case, method) or (None, None)
                counts = (len(values), len(runs), count_diverged(runs), len(recorded))
                rows.append((dataset, case, method, *paper, values.mean(), values.std(), *counts))
    numbers = ["paper_mean", "paper_std", "mean", "std", "reached", "seeds", "diverged", "recorded"]
    return pd.DataFrame(rows, columns=["dataset", "case", "method", *numbers])


# ------------------------------------------------------------------------------------------------ tables to read


def side_by_side(long: pd.DataFrame, digits: int = 2) -> pd.DataFrame:
    """For each data set and case the paper's row and ours, one a measure; a column a method."""
    methods = [method for method in NAMES if method in set(long["method"])]
    rows = []
    for (dataset, case), cells in long.groupby(["dataset", "case"], sort=False):
        place = (DATASET_NAMES[dataset], case)
        measures = list(cells.groupby("measure", sort=False)) if "measure" in cells else [("", cells)]
        first = measures[0][1].set_index("method")
        if cells["paper_mean"].notna().any():
            rows.append((*place, "paper", *(_paper_text(first.loc[m], digits) for m in methods)))
        for measure, of_measure in measures:
            who, by_method = "ours" if len(measures) == 1 else f"ours, {measure}", of_measure.set_index("method")
            rows.append((*place, who, *(_our_text(by_method.loc[m], digits) for m in methods)))
    return pd.DataFrame(rows, columns=["data", "case", "", *(NAMES[m] for m in methods)])


def by_measure(long: pd.DataFrame, digits: int = 2) -> pd.DataFrame:
    """A row a method, a column a measure; for one data set and case."""
    measures = list(dict.fromkeys(long["measure"]))
    rows = [
        (NAMES[method], *(_our_text(cells.set_index("measure").loc[measure], digits) for measure in measures))
        for method, cells in long.groupby("method", sort=False)
    ]
    return pd.DataFrame(rows, columns=["method", *measures])


def by_seed(long: pd.DataFrame) -> pd.DataFrame:
    """A row a data set, case and seed, a column a method."""
    text = long["mean"].map("{:.2f}".format) + long["diverged"].map({True: " (diverged)", False: ""})
    wide = long.assign(text=text).pivot(index=["dataset", "case", "seed"], columns="method", values="text")
    wide = wide[[method for method in NAMES if method in wide]].fillna(MISSING)
    wide = wide.rename(columns=NAMES).rename_axis(columns=None).reset_index()
    return wide.assign(dataset=wide["dataset"].map(DATASET_NAMES)).rename(columns={"dataset": "data"})


def gains_shown(gains: pd.DataFrame) -> pd.DataFrame:
    """A row a data set, case and measure, a column a method."""
    rows = [
        (
            DATASET_NAMES[dataset],
            case,
            measure,
            *(MISSING if c["seeds"] == 0 else _signed(c) for _, c in cells.iterrows()),
        )
        for (dataset, case, measure), cells in gains.groupby(["dataset", "case", "measure"], sort=False)
    ]
    return pd.DataFrame(rows, columns=["data", "case", "measure", *(NAMES[method] for method in BASELINES)])


def _signed(row: pd.Series) -> str:
    spread = f" ± {row['std']:.2f}" if row["seeds"] > 1 else ""
    return f"{row['mean']:+.2f}{spread} ({row['seeds']}{_diverged_text(row)})"


def _paper_text(cell: pd.Series, digits: int) -> str:
    return (
        MISSING if pd.isna(cell["paper_mean"]) else f"{cell['paper_mean']:.{digits}f} ± {cell['paper_std']:.{digits}f}"
    )


def _our_text(cell: pd.Series, digits: int) -> str:
    """mean ± std (seeds); where a target was not always reached, how often; how many runs diverged."""
    if cell["seeds"] == 0:
        return MISSING
    if cell["reached"] == 0:
        return f"not reached (0 of {cell['seeds']}{_diverged_text(cell)})"
    spread = f" ± {cell['std']:.{digits}f}" if cell["reached"] > 1 else ""
    count = f"{cell['seeds']}" if cell["reached"] == cell["seeds"] else f"{cell['reached']} of {cell['seeds']}"
    return f"{cell['mean']:.{digits}f}{spread} ({count}{_diverged_text(cell)})"


def _diverged_text(cell: pd.Series) -> str:
    return f", {cell['diverged']} diverged" if cell["diverged"] else ""


def missing_runs(records: Records, long: pd.DataFrame) -> str:
    """Which runs of the study a table still lacks, and the command that makes them; empty if none."""
    shown = set(zip(long["dataset"], long["case"], long["method"], strict=True))
    study = STUDIES.get(records.study)
    runs = [run for run in (study.runs if study else ()) if (run.dataset, run.case, run.label) in shown]
    missing = [run for run in runs if (run.dataset, run.case, run.label, run.seed) not in records.runs]
    if not missing:
        return ""
    lines = []
    for dataset in dict.fromkeys(run.dataset for run in missing):
        cases, labels = ({getattr(run, f): 0 for run in missing if run.dataset == dataset} for f in ("case", "label"))
        lines.append(
            f'make train STUDY={records.study} DATASETS={dataset} CASES="{" ".join(map(str, cases))}" '
            f'METHODS="{" ".join(labels)}"'
        )
    return f"{len(missing)} runs are missing; these commands make them:\n" + "\n".join(lines)
