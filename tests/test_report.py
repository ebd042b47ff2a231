"""Tables beside the paper's numbers, from records with known accuracies."""

import pandas as pd
import pytest
from conftest import write_record

from fedentropy_core.paper import tables as report
from fedentropy_core.paper.reported import papers_number, reported
from fedentropy_core.paper.study import shown_runs, study_runs
from fedentropy_core.report.source import Source, made_by
from fedentropy_core.report.tables import Shown, write_table
from fedentropy_core.runs.listing import Ignored, load_records

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
    long = report.accuracy_table(shown_runs("paper", tmp_path), "table1", ["cifar10"], ["fedavg", "moon"], [1])
    shown = report.side_by_side(long[long["measure"] == "last_ten"]).table
    assert shown[""].tolist() == ["paper", "ours", "ours − paper"]
    assert cell(shown, row=0) == "27.08 ± 0.79"
    assert cell(shown) == "28.00 ± 2.00 (3)"
    assert cell(shown, "Moon", 0) == "22.10 ± 1.30"
    assert cell(shown, "Moon") == "—"


def test_runs_that_tables_cannot_tell_apart_are_left_out_and_named(tmp_path):
    for lr in (0.01, 0.02):
        write_record(tmp_path, [0.2] * 3, devices=50, lr=lr)
    write_record(tmp_path, [0.2] * 3, devices=50, seed=1)
    with pytest.warns(Ignored, match=r"seed0-.*, .*seed0-.* differ in settings that tables do not show"):
        assert shown_runs("custom", tmp_path)["seed"].tolist() == [1]
    assert len(study_runs("custom", tmp_path)) == 3


def test_tables_are_of_the_runs_with_their_studys_own_settings(tmp_path):
    """Two records differ in β alone: both are loaded, and the table of the study has its own."""
    for beta, accuracy in ((0.1, 0.2), (0.5, 0.9)):
        write_record(tmp_path, [accuracy] * ROUNDS, study="paper", beta=beta)
    assert sorted(run.config.beta for run in load_records("paper", tmp_path)) == [0.1, 0.5]
    with pytest.warns(Ignored, match=r"seed0-\w+\.csv has other settings or images than the study paper"):
        assert shown_runs("paper", tmp_path)["beta"].tolist() == [0.1]


def test_several_measures_have_a_row_each(tmp_path):
    write_record(tmp_path, [0.4] + [0.2] * 999, dataset="cifar10")
    long = report.accuracy_table(shown_runs("paper", tmp_path), "table1", ["cifar10"], ["fedavg"], [1])
    shown = report.side_by_side(long).table
    assert shown[""].tolist() == ["paper", "ours, last ten", "ours, last hundred", "ours, best round", "ours − paper"]
    assert shown["FedAvg"].tolist() == ["27.08 ± 0.79", "20.00 (1)", "20.00 (1)", "40.00 (1)", "-7.08"]


def test_a_run_that_diverged_at_once_is_not_reported(tmp_path):
    write_record(tmp_path, [], dataset="cifar10", rounds=ROUNDS)
    assert shown_runs("paper", tmp_path).empty


def test_noise_of_ten_rounds(tmp_path):
    """The last 200 rounds in turns ten of 30 % and ten of 50 %: 20 means, each 10 points from 40, so 10·√(20/19)."""
    write_record(tmp_path, [0.0] * 800 + ([0.3] * 10 + [0.5] * 10) * 10, dataset="cifar10")
    table = report.noise_table(shown_runs("paper", tmp_path), ["cifar10"], ["fedavg"])
    assert table["mean"].iloc[0] == pytest.approx(10 * (20 / 19) ** 0.5)
    assert cell(report.side_by_side(table).table, row=0) == "10.26 (1)"


def test_one_seed_has_no_spread(tmp_path):
    record(tmp_path, 0.26)
    long = report.accuracy_table(shown_runs("paper", tmp_path), "table1", ["cifar10"], ["fedavg"], [1])
    assert cell(report.side_by_side(long[long["measure"] == "last_ten"]).table) == "26.00 (1)"


def test_a_run_that_never_reaches_the_target_is_counted(tmp_path):
    record(tmp_path, 0.35, seed=0, until=100)
    record(tmp_path, 0.35, seed=1, until=200)
    record(tmp_path, 0.29, seed=2)
    for seed in range(3):
        record(tmp_path, 0.29, label="fedprox", seed=seed)
    rounds = report.rounds_table(shown_runs("paper", tmp_path), ["cifar10"], ["fedavg", "fedprox"])
    shown = report.side_by_side(rounds).table
    assert cell(shown) == "150.00 ± 70.71 (2 of 3)"
    assert cell(shown, "FedProx") == "not reached (0 of 3)"
    assert cell(shown, row=0) == "591.33 ± 25.32"


def test_megabytes_until_the_target(tmp_path):
    """The made-up records upload 100 bytes a round."""
    record(tmp_path, 0.35, until=500)
    table = report.megabytes_table(shown_runs("paper", tmp_path), ["cifar10"], ["fedavg"])
    assert table["mean"].iloc[0] == pytest.approx(500 * 100 / 1e6)


def test_gains_are_paired_by_seed(tmp_path):
    for seed, (plain, better) in enumerate([(0.2, 0.3), (0.4, 0.44)]):
        record(tmp_path, plain, seed=seed)
        record(tmp_path, better, label="fedavg+entropy", seed=seed)
    record(tmp_path, 0.9, label="fedavg+entropy", seed=2)
    gains = report.gains_table(shown_runs("paper", tmp_path), ["cifar10"], [1])
    shown = report.gains_shown(gains).table
    assert list(shown["measure"]) == ["last ten", "last hundred", "best round"]
    assert list(shown["FedAvg"]) == ["+7.00 ± 4.24 (2)"] * 3
    assert list(shown["Moon"]) == ["—"] * 3


def test_runs_that_diverged_are_counted(tmp_path):
    """Their accuracy is that of the rounds they have."""
    write_record(tmp_path, [0.2] * 3, dataset="cifar10", rounds=1000)
    write_record(tmp_path, [0.1] * 1000, dataset="cifar10", seed=1)
    for seed in (0, 1):
        write_record(tmp_path, [0.3] * 1000, dataset="cifar10", entropy=True, seed=seed)
    runs = shown_runs("paper", tmp_path)
    long = report.accuracy_table(runs, "table1", ["cifar10"], ["fedavg", "fedavg+entropy"], [1])
    shown = report.side_by_side(long[long["measure"] == "last_ten"]).table
    assert list(shown.iloc[1, 3:]) == ["15.00 ± 7.07 (2, 1 diverged)", "30.00 ± 0.00 (2)"]
    rounds = report.side_by_side(report.rounds_table(runs, ["cifar10"], ["fedavg"])).table
    assert rounds[rounds["case"] == 1].iloc[1, 3] == "not reached (0 of 2, 1 diverged)"
    assert report.gains_shown(report.gains_table(runs, ["cifar10"], [1])).table["FedAvg"][0] == (
        "+15.00 ± 7.07 (2, 1 diverged)"
    )


def test_methods_side_by_side_are_of_the_same_seeds(tmp_path):
    """FedAvg has seeds 0 and 1, Moon seed 1 in case 1; in case 2 FedAvg is alone."""
    for seed, accuracy in enumerate((0.2, 0.3)):
        record(tmp_path, accuracy, seed=seed)
        record(tmp_path, accuracy, seed=seed, case=2)
    record(tmp_path, 0.25, label="moon", seed=1)
    methods = ["fedavg", "moon", "scaffold"]
    long = report.accuracy_table(shown_runs("paper", tmp_path), "table1", ["cifar10"], methods, [1, 2])
    shown = report.side_by_side(long[long["measure"] == "last_ten"]).table
    ours = shown.loc[shown[""] == "ours", ["FedAvg", "Moon", "SCAFFOLD"]]
    assert ours.to_numpy().tolist() == [["**30.00 (1)**", "25.00 (1)", "—"], ["25.00 ± 7.07 (2)", "—", "—"]]
    assert report.missing_runs(shown_runs("paper", tmp_path), long).startswith("13 runs are missing")  # of 18


def test_every_run_by_its_seed(tmp_path):
    record(tmp_path, 0.2)
    record(tmp_path, 0.3, seed=1)
    record(tmp_path, 0.25, label="moon", seed=1)
    write_record(tmp_path, [0.1] * 3, dataset="cifar100", method="moon", case=2, rounds=1000)
    long = report.seeds_table(shown_runs("paper", tmp_path), ["cifar10", "cifar100"], ["moon", "scaffold", "fedavg"])
    shown = report.by_seed(long).table
    assert list(shown.columns) == ["data", "case", "seed", "FedAvg", "Moon"]
    assert shown.to_numpy().tolist() == [
        ["CIFAR-10", 1, 0, "20.00", "—"],
        ["CIFAR-10", 1, 1, "30.00", "25.00"],
        ["CIFAR-100", 2, 0, "—", "10.00 (diverged)"],
    ]
    assert report.by_seed(long[:0]).table.empty


def test_missing_runs_come_with_their_command(tmp_path):
    for seed in range(3):
        record(tmp_path, 0.3, seed=seed)
    record(tmp_path, 0.3, label="moon", seed=0)
    long = report.accuracy_table(shown_runs("paper", tmp_path), "table1", ["cifar10"], ["fedavg", "moon"], [1])
    runs = shown_runs("paper", tmp_path)
    text = report.missing_runs(runs, long)
    assert text.startswith("2 runs are missing")
    assert 'make train STUDY=paper DATASETS=cifar10 CASES="1" METHODS="moon"' in text
    assert report.missing_runs(runs, long[long["variant"] == "fedavg"]) == ""
    runs.attrs["study"] = "a study of one's own"
    assert report.missing_runs(runs, long) == ""


def test_every_number_of_the_paper_is_found():
    frame = reported()
    assert frame[["dataset", "method", "mean", "std"]].notna().all().all()
    assert papers_number("table1", "cifar100", 2, "moon") == (27.11, 0.58)
    assert papers_number("table2", "cifar10", 1, "moon") == (853.67, 67.83)
    assert papers_number("table3", "cifar10", 1, "fedavg+entropy") == (40.74, 0.88)
    assert papers_number("table3", "cifar10", 1, "moon+entropy") == (35.97, 2.78)
    assert papers_number("table1", "cifar10", 1, "moon+entropy") is None


def test_the_best_of_a_row_is_bold_and_the_difference_to_the_paper_shown(tmp_path):
    record(tmp_path, 0.26)
    record(tmp_path, 0.31, label="fedavg+entropy")
    write_record(tmp_path, [0.4] * 3, dataset="cifar10", method="moon", rounds=ROUNDS)
    runs = shown_runs("paper", tmp_path)
    long = report.accuracy_table(runs, "table1", ["cifar10"], ["fedavg", "moon", "fedavg+entropy"], [1])
    shown = report.side_by_side(long[long["measure"] == "last_ten"]).table
    assert shown.iloc[1, 3:].tolist() == ["26.00 (1)", "40.00 (1, 1 diverged)", "**31.00 (1)**"]
    assert shown.iloc[2, 3:].tolist() == ["-1.08", "+17.90", "-1.52"]
    rounds = report.rounds_table(runs, ["cifar10"], ["fedavg", "fedavg+entropy"])
    assert report.side_by_side(rounds, best=min).table["FedEntropy"].iloc[1] == "1.00 (1)"  # nobody to compare with


def test_data_sets_without_runs_are_a_line_beneath(tmp_path):
    record(tmp_path, 0.26)
    long = report.accuracy_table(shown_runs("paper", tmp_path), "table1", ["cifar10", "cinic10"], ["fedavg"])
    shown = report.side_by_side(long)
    assert set(shown.table["data"]) == {"CIFAR-10"}
    assert shown.note == "No runs of CINIC-10 yet."
    assert shown.markdown().endswith("\nNo runs of CINIC-10 yet.\n")


def test_a_table_in_a_notebook():
    page = Shown(pd.DataFrame({"a": ["x & **y**"], "b": [1.5]}), "A note.")._repr_html_()
    assert '<td style="text-align: left; white-space: normal">x &amp; <b>y</b></td>' in page
    assert '<td style="text-align: right; white-space: normal">1.5</td>' in page
    assert page.endswith("<p>A note.</p>")


def test_tables_are_written_as_csv_and_markdown_and_say_what_made_them(tmp_path):
    shown = Shown(pd.DataFrame({"a": ["x", "y"], "b": ["1 ± 2", "—"]}))
    write_table("t", pd.DataFrame({"mean": [1 / 3]}), shown, tmp_path, Source("01_quickstart"))
    assert (
        tmp_path / "t.csv"
    ).read_text() == "# made by notebooks/01_quickstart.ipynb from no records\nmean\n0.333333\n"
    assert pd.read_csv(tmp_path / "t.csv", comment="#")["mean"].tolist() == [0.333333]
    table = "| a | b |\n| --- | --- |\n| x | 1 ± 2 |\n| y | — |\n"
    assert (
        tmp_path / "t.md"
    ).read_text() == f"{table}\n<!-- made by notebooks/01_quickstart.ipynb from no records -->\n"


def test_a_source_is_its_records_whatever_their_order(tmp_path):
    record(tmp_path, 0.2)
    one = made_by("n", shown_runs("paper", tmp_path))
    record(tmp_path, 0.3, seed=1)
    runs = shown_runs("paper", tmp_path)
    both = made_by("n", runs)
    assert both == made_by("n", runs.iloc[::-1])
    assert both.digest != one.digest
    assert str(both) == f"made by notebooks/n.ipynb from 2 records of “paper”, digest {both.digest}"
