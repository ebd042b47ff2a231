"""The protocol says what the code does: runs, seeds, measures."""

import re
from pathlib import Path

from conftest import write_record

from fedentropy_core.config import RunConfig
from fedentropy_core.paper import protocol
from fedentropy_core.paper.study import PAPER_CASES, STUDIES
from fedentropy_core.report.looks import DATASET_NAMES, NAMES
from fedentropy_core.runs.record import load_record

TEXT = (Path(__file__).parent.parent / "docs" / "protocol.md").read_text()
PLAIN = " ".join(TEXT.split())
PAPER = STUDIES["paper"].runs


def table_rows():
    lines = TEXT.partition("<!-- runs: start -->")[2].partition("<!-- runs: end -->")[0].strip().splitlines()
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines[2:]]


def test_the_table_has_every_run():
    """A row a method: its cases and seeds on each data set."""
    titles = {title: key for key, title in NAMES.items()}
    datasets = {title: key for key, title in DATASET_NAMES.items()}
    found = {
        (datasets[dataset], titles[method], int(case) if case.isdigit() else case, int(seed))
        for dataset, methods, cases, seeds in table_rows()
        for method in methods.split("; ")
        for case in cases.split(", ")
        for seed in seeds.split(", ")
    }
    assert found == {(run.dataset, run.label, run.case, run.seed) for run in PAPER}


def test_numbers_of_runs():
    cinic10 = sum(run.dataset == "cinic10" for run in PAPER)
    assert f"{len(PAPER)} runs of {RunConfig().rounds:,} rounds, seeds 0, 1 and 2" in PLAIN
    assert protocol.SEEDS == (0, 1, 2)
    assert f"{cinic10} of the runs are on CINIC-10" in PLAIN
    assert f"the other {len(PAPER) - cinic10} are trained" in PLAIN


def test_the_setting():
    assert {(run.partition_seed, run.augment, run.rounds) for run in PAPER} == {(0, "none", 1000)}
    assert "(`partition_seed` 0)" in PLAIN


def test_measures(tmp_path):
    assert f"last {protocol.TABLE_ROUNDS} rounds, as mean" in PLAIN
    assert f"mean of the last {protocol.VERDICT_ROUNDS} rounds" in PLAIN
    accuracies = [0.1] * 100 + [0.3] * 90 + [0.5] * 10
    record = load_record(write_record(tmp_path, accuracies).csv)
    assert abs(record.final_accuracy - 0.5) < 1e-12
    assert abs(record.last_hundred_accuracy - 0.32) < 1e-12


def test_verdicts():
    for text in (
        f"its {protocol.CONFIDENCE:.0%} interval".replace("%", " %"),
        f"power for the paper's effect is under {100 * protocol.POWER:.0f} %",
        f"the smallest effect that counts is {protocol.SMALLEST_GAIN} points of accuracy, or "
        f"{100 * protocol.SMALLEST_SAVING:.0f} % of rounds or bytes",
        f"at least {protocol.STUDIES_SIMULATED:,} simulated studies",
        f"{100 * protocol.CONFIDENCE:.0f} ± {100 * protocol.COVERAGE_TOLERANCE:.0f} % of them",
    ):
        assert text in PLAIN, text


def test_runs_that_were_known_beforehand():
    """Those of the diagnosis whose configuration is one of these but for how the partition's seed is said."""
    same = [
        run
        for run in STUDIES["diagnosis"].runs
        if run.augment == "none" and run.seed == 0 and run.momentum == 0.5 and run.label == "fedavg"
    ]
    assert sorted(run.case for run in same) == list(PAPER_CASES)
    assert "three of `diagnosis`" in PLAIN
    assert all(re.search(word, PLAIN) for word in ("Exploratory", "shards", "authors' form"))
