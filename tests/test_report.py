"""Tables beside the paper's numbers, from records with known accuracies."""

import pandas as pd
import pytest
from conftest import write_record
from fedentropy_core.report.records import Records

from fedentropy_core.paper import tables as report
from fedentropy_core.report.tables import write_table

ROUNDS = 1000


def record(folder, accuracy, label="fedavg", dataset="cifar10", case=1, seed=0, until=1):
    """A paper-profile record that has `accuracy` from round `until` on, and 0 before."""
    accuracies = [0.0] * (until - 1) + [accuracy] * (ROUNDS - until + 1)
    fields = {"method": label.split("+")[0], "entropy": "+" in label}
    write_record(folder, accuracies, dataset=dataset, case=case, seed=seed, **fields)


def cell(table, method="FedAvg", row=1):
    return table[method].iloc[row]


def test_mean_and_spread_over_seeds(tmp_path):
    for seed, accuracy in enumerate((0.26, 0.28, 0.30)):
        record(tmp_path, accuracy, seed=seed)
    long = report.accuracy_table(Records.load("paper", tmp_path), "table1", ["cifar10"], ["fedavg", "moon"], [1])
    shown = report.side_by_side(long[long["measure"] == "last ten"])
    assert shown[""].tolist() == ["paper", "ours"]
    assert cell(shown, row=0) == "27.08 ± 0.79"
    assert cell(shown) == "28.00 ± 2.00 (3)"
    assert cell(shown, "Moon", 0) == "22.10 ± 1.30"
    assert cell(shown, "Moon") == "—"


def test_runs_that_differ_in_settings_only_do_not_hide_each_other(tmp_path):
    for lr in (0.01, 0.02):
        write_record(tmp_path, [0.2] * 3, devices=50, lr=lr)
    with pytest.raises(ValueError, match="differ in settings that the tables do not show"):
        Records.load("custom", tmp_path)


def test_several_measures_have_a_row_each(tmp_path):
    write_record(tmp_path, [0.4] + [0.2] * 999, dataset="cifar10")
    long = report.accuracy_table(Records.load("paper", tmp_path), "table1", ["cifar10"], ["fedavg"], [1])
    shown = report.side_by_side(long)
    assert shown[""].tolist() == ["paper", "ours, last ten", "ours, last hundred", "ours, best round"]
    assert shown["FedAvg"].tolist() == ["27.08 ± 0.79", "20.00 (1)", "20.00 (1)", "40.00 (1)"]


def test_a_run_that_diverged_at_once_is_not_reported(tmp_path):
    write_record(tmp_path, [], dataset="cifar10", rounds=ROUNDS)
    assert Records.load("paper", tmp_path).runs == {}


def test_noise_of_ten_rounds(tmp_path):
    """The last 200 rounds in turns ten of 30 % and ten of 50 %: 20 means, each 10 points from 40, so 10·√(20/19)."""
    write_record(tmp_path, [0.0] * 800 + ([0.3] * 10 + [0.5] * 10) * 10, dataset="cifar10")
    table = report.noise_table(Records.load("paper", tmp_path), ["cifar10"], ["fedavg"])
    assert table["mean"].iloc[0] == pytest.approx(10 * (20 / 19) ** 0.5)
    assert cell(report.side_by_side(table), row=0) == "10.26 (1)"


def test_one_seed_has_no_spread(tmp_path):
    record(tmp_path, 0.26)
    long = report.accuracy_table(Records.load("paper", tmp_path), "table1", ["cifar10"], ["fedavg"], [1])
    assert cell(report.side_by_side(long[long["measure"] == "last ten"])) == "26.00 (1)"


def test_a_run_that_never_reaches_the_target_is_counted(tmp_path):
    record(tmp_path, 0.35, seed=0, until=100)
    record(tmp_path, 0.35, seed=1, until=200)
    record(tmp_path, 0.29, seed=2)
    for seed in range(3):
        record(tmp_path, 0.29, label="fedprox", seed=seed)
    rounds = report.rounds_table(Records.load("paper", tmp_path), ["cifar10"], ["fedavg", "fedprox"])
    shown = report.side_by_side(rounds)
    assert cell(shown) == "150.00 ± 70.71 (2 of 3)"
    assert cell(shown, "FedProx") == "not reached (0 of 3)"
    assert cell(shown, row=0) == "591.33 ± 25.32"


def test_megabytes_until_the_target(tmp_path):
    """The made-up records upload 100 bytes a round."""
    record(tmp_path, 0.35, until=500)
    table = report.megabytes_table(Records.load("paper", tmp_path), ["cifar10"], ["fedavg"])
    assert table["mean"].iloc[0] == pytest.approx(500 * 100 / 1e6)


def test_gains_are_paired_by_seed(tmp_path):
    for seed, (plain, better) in enumerate([(0.2, 0.3), (0.4, 0.44)]):
        record(tmp_path, plain, seed=seed)
        record(tmp_path, better, label="fedavg+entropy", seed=seed)
    record(tmp_path, 0.9, label="fedavg+entropy", seed=2)
    gains = report.gains_table(Records.load("paper", tmp_path), ["cifar10"], [1])
    shown = report.gains_shown(gains)
    assert list(shown["measure"]) == ["last ten", "last hundred", "best round"]
    assert list(shown["FedAvg"]) == ["+7.00 ± 4.24 (2)"] * 3
    assert list(shown["Moon"]) == ["—"] * 3


def test_runs_that_diverged_are_counted(tmp_path):
    """Their accuracy is that of the rounds they have."""
    write_record(tmp_path, [0.2] * 3, dataset="cifar10", rounds=1000)
    write_record(tmp_path, [0.1] * 1000, dataset="cifar10", seed=1)
    for seed in (0, 1):
        write_record(tmp_path, [0.3] * 1000, dataset="cifar10", entropy=True, seed=seed)
    records = Records.load("paper", tmp_path)
    long = report.accuracy_table(records, "table1", ["cifar10"], ["fedavg", "fedavg+entropy"], [1])
    shown = report.side_by_side(long[long["measure"] == "last ten"])
    assert list(shown.iloc[1, 3:]) == ["15.00 ± 7.07 (2, 1 diverged)", "30.00 ± 0.00 (2)"]
    rounds = report.side_by_side(report.rounds_table(records, ["cifar10"], ["fedavg"]))
    assert rounds[rounds["case"] == 1].iloc[1, 3] == "not reached (0 of 2, 1 diverged)"
    assert report.gains_shown(report.gains_table(records, ["cifar10"], [1]))["FedAvg"][0] == (
        "+15.00 ± 7.07 (2, 1 diverged)"
    )


def test_methods_side_by_side_are_of_the_same_seeds(tmp_path):
    """FedAvg has seeds 0 and 1, Moon seed 1 in case 1; in case 2 FedAvg is alone."""
    for seed, accuracy in enumerate((0.2, 0.3)):
        record(tmp_path, accuracy, seed=seed)
        record(tmp_path, accuracy, seed=seed, case=2)
    record(tmp_path, 0.25, label="moon", seed=1)
    methods = ["fedavg", "moon", "scaffold"]
    long = report.accuracy_table(Records.load("paper", tmp_path), "table1", ["cifar10"], methods, [1, 2])
    shown = report.side_by_side(long[long["measure"] == "last ten"])
    ours = shown.loc[shown[""] == "ours", ["FedAvg", "Moon", "SCAFFOLD"]]
    assert ours.to_numpy().tolist() == [["30.00 (1)", "25.00 (1)", "—"], ["25.00 ± 7.07 (2)", "—", "—"]]
    assert report.missing_runs(Records.load("paper", tmp_path), long).startswith("13 runs are missing")  # of 18


def test_every_run_by_its_seed(tmp_path):
    record(tmp_path, 0.2)
    record(tmp_path, 0.3, seed=1)
    record(tmp_path, 0.25, label="moon", seed=1)
    write_record(tmp_path, [0.1] * 3, dataset="cifar100", method="moon", case=2, rounds=1000)
    long = report.seeds_table(Records.load("paper", tmp_path), ["cifar10", "cifar100"], ["moon", "scaffold", "fedavg"])
    shown = report.by_seed(long)
    assert list(shown.columns) == ["data", "case", "seed", "FedAvg", "Moon"]
    assert shown.to_numpy().tolist() == [
        ["CIFAR-10", 1, 0, "20.00", "—"],
        ["CIFAR-10", 1, 1, "30.00", "25.00"],
        ["CIFAR-100", 2, 0, "—", "10.00 (diverged)"],
    ]
    assert report.by_seed(long[:0]).empty


def test_missing_runs_come_with_their_command(tmp_path):
    for seed in range(3):
        record(tmp_path, 0.3, seed=seed)
    record(tmp_path, 0.3, label="moon", seed=0)
    long = report.accuracy_table(Records.load("paper", tmp_path), "table1", ["cifar10"], ["fedavg", "moon"], [1])
    records = Records.load("paper", tmp_path)
    text = report.missing_runs(records, long)
    assert text.startswith("2 runs are missing")
    assert 'make train STUDY=paper DATASETS=cifar10 CASES="1" METHODS="moon"' in text
    assert report.missing_runs(records, long[long["method"] == "fedavg"]) == ""
    assert report.missing_runs(Records(records.runs, "a study of one's own"), long) == ""


def test_every_number_of_the_paper_is_found():
    frame = report.reported()
    assert frame[["dataset", "method", "mean", "std"]].notna().all().all()
    assert report.papers_number("table1", "cifar100", 2, "moon") == (27.11, 0.58)
    assert report.papers_number("table2", "cifar10", 1, "moon") == (853.67, 67.83)
    assert report.papers_number("table3", "cifar10", 1, "fedavg+entropy") == (40.74, 0.88)
    assert report.papers_number("table3", "cifar10", 1, "moon+entropy") == (35.97, 2.78)
    assert report.papers_number("table1", "cifar10", 1, "moon+entropy") is None


def test_tables_are_written_as_csv_and_markdown(tmp_path):
    shown = pd.DataFrame({"a": ["x", "y"], "b": ["1 ± 2", "—"]})
    write_table("t", pd.DataFrame({"mean": [1 / 3]}), shown, tmp_path)
    assert (tmp_path / "t.csv").read_text() == "mean\n0.333333\n"
    assert (tmp_path / "t.md").read_text() == "| a | b |\n| --- | --- |\n| x | 1 ± 2 |\n| y | — |\n"
