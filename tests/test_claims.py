"""Verdicts follow from the rules that were declared, and change when the records do."""

import numpy as np
import pandas as pd
import pytest
from conftest import write_record
from matplotlib import pyplot as plt
from scipy import stats

from fedentropy_core.paper import claims, comparisons
from fedentropy_core.paper.claims import Verdict, decide_all, every, fact, most
from fedentropy_core.paper.comparisons import Cells, Direction, Pair, judge_accuracy, judge_target, papers_difference
from fedentropy_core.paper.messages import (
    downlink_is_the_same,
    scaffold_doubles,
    soft_labels_are_negligible,
    upload_is_at_most_fedavgs,
)
from fedentropy_core.paper.observed import entropy_and_accuracy, round_correlation
from fedentropy_core.paper.reported import papers_number
from fedentropy_core.report.forest import forest
from fedentropy_core.report.frame import frame
from fedentropy_core.runs.record import load_record

PAIR = Pair("synthetic", 1, "fedavg+entropy", "fedavg", "")
BACK = Pair("synthetic", 1, "fedavg", "fedavg+entropy", "")
UNKNOWN = Pair("synthetic", 2, "fedavg", "fedavg+entropy", "")


def runs(folder, variants, **fields):
    """A frame of runs of 100 rounds: for each variant its accuracies, a seed each."""
    made = []
    for (method, entropy), accuracies in variants.items():
        for seed, accuracy in enumerate(accuracies):
            row = accuracy if isinstance(accuracy, list) else [accuracy] * 100
            settings = {"method": method, "entropy": entropy, "seed": seed} | fields
            made.append(load_record(write_record(folder, row, **settings).csv))
    return frame(made)


def two(folder, better, worse, **fields):
    return runs(folder, {("fedavg", True): better, ("fedavg", False): worse}, **fields)


@pytest.mark.parametrize(
    ("better", "worse", "direction"),
    [
        ([0.70, 0.71, 0.69], [0.60, 0.59, 0.61], Direction.HOLDS),
        ([0.60, 0.59, 0.61], [0.70, 0.71, 0.69], Direction.FAILS),
        ([0.70, 0.60, 0.65], [0.65, 0.70, 0.60], Direction.OPEN),
        ([0.70, 0.60, 0.65], [0.65, 0.69, 0.60], Direction.UNDERPOWERED),  # ahead by a third of a point
        ([0.70], [0.60], Direction.UNTESTED),
        ([], [0.60, 0.61], Direction.UNTESTED),
    ],
)
def test_directions(tmp_path, better, worse, direction):
    assert judge_accuracy(Cells(two(tmp_path, better, worse)), PAIR).direction is direction


def test_an_interval_by_hand(tmp_path):
    """Both have a deviation of one point over three seeds that do not go together: s = 1, t with 4 degrees 2.776."""
    judged = judge_accuracy(Cells(two(tmp_path, [0.70, 0.71, 0.72], [0.61, 0.60, 0.62])), PAIR)
    assert not judged.paired
    assert judged.mean == pytest.approx(10)
    assert judged.high - judged.mean == pytest.approx(2.776 * np.sqrt(2 / 3), rel=1e-3)
    assert judged.p_value == pytest.approx(stats.ttest_ind([70, 71, 72], [61, 60, 62]).pvalue)


def test_seeds_that_go_together_are_paired(tmp_path):
    judged = judge_accuracy(Cells(two(tmp_path, [0.60, 0.701, 0.80], [0.55, 0.65, 0.751])), PAIR)
    assert judged.paired
    assert judged.high - judged.low < 1


def test_methods_at_chance_are_pooled_apart(tmp_path):
    """The live ones have a deviation of 5 points, the dead one of 0.01: the interval is that of the live ones."""
    variants = {("fedavg", True): [0.70, 0.75, 0.80], ("moon", False): [0.80, 0.70, 0.75]}
    dead = {("scaffold", False): [0.5001, 0.5, 0.4999]}
    cells = Cells(runs(tmp_path, variants | dead))
    judged = judge_accuracy(cells, Pair("synthetic", 1, "fedavg+entropy", "scaffold", ""))
    assert judged.high - judged.mean == pytest.approx(stats.t.ppf(0.975, 4) * 5 / np.sqrt(3), rel=1e-3)
    assert judged.remark == "scaffold at chance with 3 of 3 seeds"


def test_a_method_that_diverged_is_never_ahead(tmp_path):
    """It was far ahead when it did."""
    ended = [[0.9] * 40] * 3
    found = two(tmp_path, ended, [0.6, 0.6, 0.61], rounds=100)
    assert judge_accuracy(Cells(found), PAIR).direction is Direction.OPEN
    assert judge_target(Cells(found), PAIR, "rounds").direction is Direction.OPEN
    assert judge_accuracy(Cells(found), BACK).direction is not Direction.FAILS


def test_the_last_ten_may_say_otherwise(tmp_path):
    falls = [[0.8] * 90 + [0.4 + seed / 100] * 10 for seed in range(3)]
    judged = judge_accuracy(Cells(two(tmp_path, falls, [0.6, 0.61, 0.6])), PAIR)
    assert judged.direction is Direction.HOLDS
    assert judged.remark.endswith("by the last ten rounds fails")


# ------------------------------------------------------------------------------------------------ targets


@pytest.mark.parametrize(
    ("better", "worse", "direction"),
    [
        ((10, 20, 30), (20, 30, 40), Direction.HOLDS),
        ((10, 20, 40), (20, 30, 30), Direction.OPEN),
        ((20, 30, 40), (10, 20, 30), Direction.FAILS),
        ((10, 20, 30), (None, None, 40), Direction.HOLDS),
        ((10, None, 30), (20, None, 40), Direction.OPEN),
        ((10, 20), (20, 30), Direction.UNTESTED),
    ],
)
def test_rounds_to_a_target_are_decided_seed_by_seed(tmp_path, better, worse, direction):
    def curve(first):
        return [0.05] * 100 if first is None else [0.05] * (first - 1) + [0.5] * (101 - first)

    found = two(tmp_path, [curve(first) for first in better], [curve(first) for first in worse])
    judged = judge_target(Cells(found), PAIR, "rounds")
    assert judged.direction is direction
    first = [str(value).replace("None", "never") for value in (better[0], worse[0])]
    assert judged.remark.startswith(" against ".join(first))
    if None not in better + worse and len(better) == 3:
        assert judged.mean == pytest.approx(100 * (1 - np.mean(better) / np.mean(worse)))


# ------------------------------------------------------------------------------------------------ the paper's side


def test_the_papers_differences_are_its_tables(tmp_path):
    """32.52 ± 1.05 against 27.08 ± 0.79 with three seeds."""
    mean, error = papers_difference(Pair("cifar10", 1, "fedavg+entropy", "fedavg"))
    assert mean == pytest.approx(5.44)
    assert error == pytest.approx(np.sqrt((1.05**2 + 0.79**2) / 3))
    assert np.isnan(papers_difference(Pair("cifar10", 1, "moon+entropy", "moon", ""))).all()


@pytest.mark.parametrize(("ahead", "agrees"), [(0.0544, True), (0.12, False)])
def test_sizes_agree_within_two_errors_of_both_sides(tmp_path, ahead, agrees):
    worse = np.array([0.26, 0.27, 0.28])
    found = two(tmp_path, (worse[[1, 0, 2]] + ahead).round(4).tolist(), worse.tolist(), dataset="cifar10")
    judged = judge_accuracy(Cells(found), Pair("cifar10", 1, "fedavg+entropy", "fedavg"))
    assert judged.agrees is agrees
    errors = np.hypot(judged.paper_error, judged.ours_error)
    assert agrees == (abs(judged.ours - judged.paper) <= 2 * errors)


# ------------------------------------------------------------------------------------------------ claims


def test_a_claim_needs_every_comparison(tmp_path):
    found = two(tmp_path, [0.70, 0.71, 0.69], [0.60, 0.61, 0.59])
    assert every([PAIR], judge_accuracy, "")(found).direction is Direction.HOLDS
    assert every([PAIR, BACK], judge_accuracy, "")(found).direction is Direction.FAILS
    assert every([PAIR, UNKNOWN], judge_accuracy, "")(found).direction is Direction.UNTESTED
    assert every([BACK, UNKNOWN], judge_accuracy, "")(found).direction is Direction.FAILS
    assert every([UNKNOWN], judge_accuracy, "")(found).direction is Direction.UNTESTED


def test_one_comparison_of_many_must_fail_by_holms_level(tmp_path):
    """p is 0.03: enough alone, not one among ten."""
    found = two(tmp_path, [0.60, 0.61, 0.605], [0.612, 0.622, 0.617][::-1])
    p = judge_accuracy(Cells(found), PAIR).p_value
    assert 0.05 / 11 < p < 0.05
    assert every([PAIR], judge_accuracy, "")(found).direction is Direction.FAILS
    alike = [Pair("synthetic", 1, "fedavg", "fedavg+entropy", "")] * 10
    assert every([PAIR, *alike], judge_accuracy, "")(found).direction is Direction.OPEN


def test_most_counts_settings(tmp_path):
    found = two(tmp_path, [0.70, 0.71, 0.69], [0.60, 0.61, 0.59])
    for settings, direction in (
        ([[PAIR, PAIR], [PAIR], [BACK]], Direction.HOLDS),
        ([[PAIR, BACK], [PAIR, BACK], [PAIR]], Direction.FAILS),
        ([[PAIR], [PAIR], [UNKNOWN]], Direction.HOLDS),
        ([[PAIR], [BACK], [UNKNOWN], [UNKNOWN]], Direction.UNTESTED),
    ):
        assert most(settings, judge_accuracy, "")(found).direction is direction


def test_facts():
    assert fact(lambda frame: (True, "why"))(None) == Verdict(Direction.HOLDS, "no number", "why", "—")
    assert fact(lambda frame: (False, "why"))(None).direction is Direction.FAILS
    assert fact(lambda frame: (None, "why"))(None).direction is Direction.UNTESTED


def test_messages_follow_from_what_is_sent(tmp_path):
    found = runs(tmp_path, {("fedavg", False): [0.5], ("fedavg", True): [0.5], ("scaffold", False): [0.5]})
    facts = (downlink_is_the_same, scaffold_doubles, soft_labels_are_negligible, upload_is_at_most_fedavgs)
    assert [of(frame([]))[0] for of in facts] == [None] * 4
    by = found.set_index("variant")["record"]
    for column, share in (("bytes_down", 1), ("bytes_up", 1), ("models_up", 10)):
        by["fedavg"].rounds[column] = by["fedavg+entropy"].rounds[column] = 1000 * share
    by["fedavg"].rounds["models_up"] = 10
    by["fedavg+entropy"].rounds["models_up"] = 10
    assert [bool(of(found)[0]) for of in facts] == [False, False, True, True]
    for column in ("bytes_down", "bytes_up"):
        by["scaffold"].rounds[column] = 2000
    assert [bool(of(found)[0]) for of in facts] == [False, True, True, True]
    by["scaffold"].rounds["bytes_down"] = 1000
    by["fedavg+entropy"].rounds["bytes_up"] = 1020
    assert [bool(of(found)[0]) for of in facts] == [True, True, False, False]


def test_entropy_and_accuracy_go_together_where_they_do(tmp_path):
    rng = np.random.default_rng(0)
    made = []
    for seed in range(6):
        entropy = rng.normal(size=300)
        accuracy = (0.5 + 0.01 * entropy + 0.01 * rng.normal(size=300)).round(4)
        made.append(load_record(write_record(tmp_path / "b", accuracy.tolist(), seed=seed).csv))
        made[-1].rounds["entropy_before"] = entropy
    assert entropy_and_accuracy(frame(made))[0] is True
    for record in made:
        record.rounds["entropy_before"] *= -1
    assert entropy_and_accuracy(frame(made))[0] is False
    for record in made:
        record.rounds["entropy_before"] = rng.normal(size=300)
    assert entropy_and_accuracy(frame(made))[0] is None
    made[0].rounds["entropy_before"] = 1.0
    assert np.isnan(round_correlation(made[0]))


# ------------------------------------------------------------------------------------------------ all of them


def test_every_claim_is_decided_whatever_there_is(tmp_path):
    for found in (frame([]), two(tmp_path, [0.3, 0.31], [0.2, 0.21], dataset="cifar10")):
        decided = decide_all(found)
        assert len(claims.claims_table(decided)) == len(claims.claims())
        assert sum(claims.counted(decided).values()) == len(claims.claims())
        claims.comparisons_table(decided)


def test_the_claims_text_has_the_papers_numbers():
    for claim in claims.claims():
        for name, method in (("FedAvg", "fedavg"), ("FedProx", "fedprox"), ("SCAFFOLD", "scaffold"), ("Moon", "moon")):
            if claim.text.endswith(f"points more accurate than {name}"):
                ours, theirs = (papers_number("table1", "cifar10", 1, m)[0] for m in ("fedavg+entropy", method))
                assert f"is {ours - theirs:.2f} points" in claim.text


def test_a_pair_is_ahead_of_another_method():
    for claim, verdict in decide_all(frame([])):
        for row in verdict.rows:
            assert row.pair.better != row.pair.worse, claim.text


def test_a_forest_shows_each_row(tmp_path):
    judged = judge_accuracy(Cells(two(tmp_path, [0.70, 0.71, 0.69], [0.60, 0.61, 0.59])), PAIR)
    row = ("synthetic", "case 1", "FedAvg", judged.mean, judged.low, judged.high, 5.0, 0.5, "")
    none = ("synthetic", "case 2", "FedAvg", np.nan, np.nan, np.nan, np.nan, np.nan, "no runs")
    names = ["panel", "group", "label", "mean", "low", "high", "reported", "error", "remark"]
    figure = forest(pd.DataFrame([row, none], columns=names), ["synthetic"], "points", "a note")
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["FedAvg", "FedAvg"]
    assert any(np.allclose(line.get_xdata(), [judged.low, judged.high]) for line in axes.get_lines())
    assert any("no runs" in text.get_text() for text in axes.texts)
    plt.close(figure)


def test_the_docstrings_numbers_are_the_protocols():
    assert comparisons.SMALLEST_GAIN == 1.0
    assert comparisons.CONFIDENCE == 0.95
