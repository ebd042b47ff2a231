"""From runs to tables: accuracy, rounds and bytes to a target, each beside the paper's number.

A table is made in long form (a row a cell, numbers only) and shown side by side (paper and ours, as text). A cell whose
runs are missing shows "—". Methods side by side are of the same seeds: while some have more seeds than others, only
those that all of them have count.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pandas as pd

from fedentropy_core.paper.reported import BASELINES, ROUNDS_TABLES, TARGETS, papers_number
from fedentropy_core.paper.study import PAPER_CASES, STUDIES
from fedentropy_core.report.frame import cell, reached, same_seeds
from fedentropy_core.report.looks import DATASET_NAMES, NAMES
from fedentropy_core.report.tables import MISSING, Shown, bold
from fedentropy_core.runs.record import RunRecord

MEASURES = {"last_ten": "last ten", "last_hundred": "last hundred", "best": "best round"}
PLACE = ["dataset", "case"]

# ------------------------------------------------------------------------------------------------ long tables


def accuracy_table(
    runs: pd.DataFrame,
    table: str,
    datasets: Sequence[str],
    variants: Sequence[str],
    cases: Sequence[int] = PAPER_CASES,
) -> pd.DataFrame:
    """In percent: the mean of the last ten rounds (the paper's measure), of the last hundred, and the best round."""
    cells = [_cells(runs, m, table, datasets, variants, cases).assign(measure=m) for m in MEASURES]
    return pd.concat(cells, ignore_index=True)


def seeds_table(runs: pd.DataFrame, datasets: Sequence[str], variants: Sequence[str]) -> pd.DataFrame:
    """A row a recorded run: its accuracy in percent, mean of the last ten rounds."""
    rows = [cell(runs, dataset, case, v) for dataset in datasets for case in PAPER_CASES for v in variants]
    return pd.concat(rows, ignore_index=True)[["dataset", "case", "seed", "variant", "last_ten", "diverged"]]


def rounds_table(runs: pd.DataFrame, datasets: Sequence[str], variants: Sequence[str]) -> pd.DataFrame:
    """Rounds to the paper's target, over the seeds that reach it; `reached` counts them."""
    runs = to_target(runs, "rounds")
    tables = [_cells(runs, "rounds_to_target", ROUNDS_TABLES.get(d, ""), [d], variants) for d in datasets]
    return pd.concat(tables, ignore_index=True)


def megabytes_table(runs: pd.DataFrame, datasets: Sequence[str], variants: Sequence[str]) -> pd.DataFrame:
    """MB uploaded until the paper's target is reached: models, SCAFFOLD's controls and soft labels."""
    return _cells(to_target(runs, "megabytes"), "megabytes_to_target", "", datasets, variants)


def to_target(runs: pd.DataFrame, what: str) -> pd.DataFrame:
    """The runs that have a target, with their rounds or megabytes to it as a column; NaN where it is not reached."""
    there = [place in TARGETS for place in zip(runs["dataset"], runs["case"], strict=True)]
    runs = runs[np.array(there, dtype=bool)]
    rows = zip(runs["record"], runs["dataset"], runs["case"], strict=True)
    return runs.assign(**{f"{what}_to_target": [reached(record, TARGETS[d, c])[what] for record, d, c in rows]})


def noise_table(runs: pd.DataFrame, datasets: Sequence[str], variants: Sequence[str]) -> pd.DataFrame:
    """How much of an accuracy is the choice of its ten rounds: `ten_round_noise`, mean over seeds."""
    runs = runs.assign(noise=[ten_round_noise(record) for record in runs["record"]])
    return _cells(runs, "noise", "", datasets, variants)


def ten_round_noise(record: RunRecord) -> float:
    """How much ten rounds differ from other ten at the end of a run: the standard deviation of the means of ten rounds
    over the last 200, in points; NaN for a run of less than 20 rounds."""
    accuracy = 100 * record.rounds["accuracy"].tail(200)
    return float(accuracy.groupby((accuracy.index[-1] - accuracy.index) // 10).mean().std())


def gains_table(runs: pd.DataFrame, datasets: Sequence[str], cases: Sequence[int] = PAPER_CASES) -> pd.DataFrame:
    """Points of accuracy that FedEntropy adds to each method by each measure, paired by seed."""
    rows = []
    for dataset in datasets:
        for case in cases:
            for method in BASELINES:
                pairs = paired(runs, dataset, case, f"{method}+entropy", method)
                diverged = int((pairs["diverged"] | pairs["diverged_other"]).sum())
                for measure in MEASURES:
                    gains = (pairs[measure] - pairs[f"{measure}_other"]).astype(float)
                    rows.append((dataset, case, measure, method, gains.mean(), gains.std(), len(gains), diverged))
    columns = ["dataset", "case", "measure", "method", "mean", "std", "seeds", "diverged"]
    return pd.DataFrame(rows, columns=columns)


def paired(runs: pd.DataFrame, dataset: str, case: int, one: str, other: str) -> pd.DataFrame:
    """A row a seed that both have: columns of `one`, and those of `other` as <column>_other."""
    sides = (cell(runs, dataset, case, variant) for variant in (one, other))
    return pd.merge(*sides, on="seed", suffixes=("", "_other"))


def _cells(
    runs: pd.DataFrame,
    measure: str,
    table: str,
    datasets: Iterable[str],
    variants: Sequence[str],
    cases: Iterable[int] = PAPER_CASES,
) -> pd.DataFrame:
    """`recorded` counts all runs, `seeds` those that are compared, `reached` those of them that have the measure."""
    rows, shared = [], same_seeds(runs, variants)
    for dataset in datasets:
        for case in cases:
            for variant in variants:
                compared = cell(shared, dataset, case, variant)
                values = compared[measure].dropna().astype(float)
                paper = papers_number(table, dataset, case, variant) or (None, None)
                counts = (len(values), len(compared), int(compared["diverged"].sum()))
                recorded = len(cell(runs, dataset, case, variant))
                rows.append((dataset, case, variant, *paper, values.mean(), values.std(), *counts, recorded))
    numbers = ["paper_mean", "paper_std", "mean", "std", "reached", "seeds", "diverged", "recorded"]
    return pd.DataFrame(rows, columns=["dataset", "case", "variant", *numbers])


# ------------------------------------------------------------------------------------------------ tables to read


def side_by_side(long: pd.DataFrame, digits: int = 2, best: Callable | None = max) -> Shown:
    """For each data set and case the paper's row, ours, one a measure, and what ours is more; a column a variant.

    The `best` of a row of ours is bold, of those whose runs all have the measure; data sets without runs are named
    beneath.
    """
    there, note = with_runs(long)
    variants = [variant for variant in NAMES if variant in set(there["variant"])]
    rows = []
    for (dataset, case), cells in there.groupby(PLACE, sort=False):
        rows += [(DATASET_NAMES[dataset], case, *row) for row in _rows(cells, variants, digits, best)]
    return Shown(pd.DataFrame(rows, columns=["data", "case", "", *(NAMES[v] for v in variants)]), note)


def _rows(cells: pd.DataFrame, variants: Sequence[str], digits: int, best: Callable | None) -> list[tuple]:
    """Of a data set and case: name and text of each row."""
    measures = list(cells.groupby("measure", sort=False)) if "measure" in cells else [("", cells)]
    first, rows = measures[0][1].set_index("variant"), []
    if paper := first["paper_mean"].notna().any():
        rows.append(("paper", *(_paper_text(first.loc[v], digits) for v in variants)))
    for measure, of_measure in measures:
        who = "ours" if len(measures) == 1 else f"ours, {MEASURES[measure]}"
        rows.append((who, *_best_in_bold(of_measure.set_index("variant").loc[list(variants)], digits, best)))
    if paper:
        rows.append(("ours − paper", *(_difference_text(first.loc[v], digits) for v in variants)))
    return rows


def _best_in_bold(cells: pd.DataFrame, digits: int, best: Callable | None) -> list[str]:
    texts = [_our_text(cell, digits) for _, cell in cells.iterrows()]
    whole = cells["mean"].where((cells["reached"] == cells["seeds"]) & (cells["diverged"] == 0))
    if best is None or whole.count() < 2:
        return texts
    return [bold(text) if mean == best(whole.dropna()) else text for text, mean in zip(texts, whole, strict=True)]


def by_measure(long: pd.DataFrame, digits: int = 2) -> Shown:
    """A row a variant, a column a measure, its best in bold; for one data set and case."""
    variants = list(dict.fromkeys(long["variant"]))
    columns = {
        MEASURES[measure]: _best_in_bold(cells.set_index("variant").loc[variants], digits, max)
        for measure, cells in long.groupby("measure", sort=False)
    }
    return Shown(pd.DataFrame({"variant": [NAMES[variant] for variant in variants], **columns}))


def by_seed(long: pd.DataFrame) -> Shown:
    """A row a data set, case and seed, a column a variant."""
    text = long["last_ten"].map("{:.2f}".format) + long["diverged"].map({True: " (diverged)", False: ""})
    wide = long.assign(text=text).pivot(index=["dataset", "case", "seed"], columns="variant", values="text")
    wide = wide[[variant for variant in NAMES if variant in wide]].fillna(MISSING)
    wide = wide.rename(columns=NAMES).rename_axis(columns=None).reset_index()
    return Shown(wide.assign(dataset=wide["dataset"].map(DATASET_NAMES)).rename(columns={"dataset": "data"}))


def gains_shown(gains: pd.DataFrame) -> Shown:
    """A row a data set, case and measure, a column a method."""
    there, note = with_runs(gains)
    rows = [
        (
            DATASET_NAMES[dataset],
            case,
            MEASURES[measure],
            *(MISSING if c["seeds"] == 0 else _signed(c) for _, c in cells.iterrows()),
        )
        for (dataset, case, measure), cells in there.groupby([*PLACE, "measure"], sort=False)
    ]
    names = [NAMES[method] for method in BASELINES]
    return Shown(pd.DataFrame(rows, columns=["data", "case", "measure", *names]), note)


def with_runs(long: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The rows of data sets that have any run, and a line that names the others."""
    seeds = long.groupby("dataset", sort=False)["seeds"].sum()
    missing = ", ".join(DATASET_NAMES[dataset] for dataset in seeds.index[seeds == 0])
    return long[long["dataset"].map(seeds) > 0], f"No runs of {missing} yet." if missing else ""


def _signed(row: pd.Series) -> str:
    spread = f" ± {row['std']:.2f}" if row["seeds"] > 1 else ""
    return f"{row['mean']:+.2f}{spread} ({row['seeds']}{_diverged_text(row)})"


def _paper_text(cell: pd.Series, digits: int) -> str:
    return (
        MISSING if pd.isna(cell["paper_mean"]) else f"{cell['paper_mean']:.{digits}f} ± {cell['paper_std']:.{digits}f}"
    )


def _difference_text(cell: pd.Series, digits: int) -> str:
    difference = cell["mean"] - cell["paper_mean"]
    return MISSING if pd.isna(difference) else f"{difference:+.{digits}f}"


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


def missing_runs(runs: pd.DataFrame, long: pd.DataFrame) -> str:
    """Which runs of the study a table still lacks, and the command that makes them; empty if none."""
    shown = set(zip(long["dataset"], long["case"], long["variant"], strict=True))
    name = runs.attrs["study"]
    of_study = STUDIES[name].runs if name in STUDIES else ()
    wanted = [run for run in of_study if (run.dataset, run.case, run.label) in shown]
    there = set(zip(runs["dataset"], runs["case"], runs["variant"], runs["seed"], strict=True))
    missing = [run for run in wanted if (run.dataset, run.case, run.label, run.seed) not in there]
    if not missing:
        return ""
    lines = []
    for dataset in dict.fromkeys(run.dataset for run in missing):
        cases, labels = ({getattr(run, f): 0 for run in missing if run.dataset == dataset} for f in ("case", "label"))
        lines.append(
            f"make train STUDY={name} DATASETS={dataset} "
            f'CASES="{" ".join(map(str, cases))}" METHODS="{" ".join(labels)}"'
        )
    return f"{len(missing)} runs are missing; these commands make them:\n" + "\n".join(lines)
