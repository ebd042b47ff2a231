"""Verdicts follow from the rule, and change when the records do."""

import math

import numpy as np
import pytest
from conftest import write_record

from fedentropy_core import claims
from fedentropy_core.claims import (
    NOT_REPRODUCED,
    NOT_TESTED,
    REPRODUCED,
    Comparison,
    all_better,
    difference_is,
    last_ten,
)
from fedentropy_core.report import Records, papers_number

PAIR = Comparison("synthetic", 1, "fedavg+entropy", "fedavg")


def records(folder, pairs):
    """Records of FedEntropy and FedAvg with these accuracies, a pair a seed."""
    for seed, (better, worse) in enumerate(pairs):
        write_record(folder, [better] * 100, seed=seed, entropy=True)
        write_record(folder, [worse] * 100, seed=seed)
    return Records.load("quick", folder)


def test_an_interval_by_hand(tmp_path):
    """Differences 2, 4, 6: mean 4, standard deviation 2, t(2) = 4.303, half-width 4.303·2/√3."""
    measured = claims.measure_pair(records(tmp_path, [(0.22, 0.2), (0.34, 0.3), (0.46, 0.4)]), PAIR, last_ten)
    assert measured.mean == pytest.approx(4)
    assert measured.half_width == pytest.approx(4.303 * 2 / math.sqrt(3))
    assert measured.seeds == 3


def test_t_quantiles_cover_95_percent():
    """Against a simulation: the interval holds the true mean in 95 of 100 samples."""
    rng = np.random.default_rng(0)
    for n, quantile in claims.T_QUANTILES.items():
        x = rng.normal(size=(40_000, n))
        inside = np.abs(x.mean(axis=1)) <= quantile * x.std(axis=1, ddof=1) / np.sqrt(n)
        assert abs(inside.mean() - 0.95) < 0.006, n


@pytest.mark.parametrize(
    ("pairs", "verdict"),
    [
        ([(0.3, 0.2), (0.3, 0.2)], REPRODUCED),
        ([(0.3, 0.2), (0.2, 0.31)], NOT_REPRODUCED),
        ([(0.2, 0.3), (0.2, 0.3)], NOT_REPRODUCED),
        ([(0.3, 0.2)], NOT_TESTED),
        ([], NOT_TESTED),
    ],
)
def test_comparisons(tmp_path, pairs, verdict):
    assert all_better([PAIR], last_ten)(records(tmp_path, pairs))[0] == verdict


def test_one_wrong_comparison_spoils_a_claim(tmp_path):
    found = records(tmp_path, [(0.3, 0.2), (0.3, 0.2)])
    back = Comparison("synthetic", 1, "fedavg", "fedavg+entropy")
    assert all_better([PAIR, back], last_ten)(found)[0] == NOT_REPRODUCED
    unknown = Comparison("synthetic", 2, "fedavg", "fedavg+entropy")
    verdict, _, note = all_better([PAIR, unknown], last_ten)(found)
    assert verdict == NOT_TESTED
    assert note.startswith("1 of 2 comparisons have no runs")


@pytest.mark.parametrize(("paper", "verdict"), [(10.0, REPRODUCED), (10.9, REPRODUCED), (12.0, NOT_REPRODUCED)])
def test_percentages(tmp_path, paper, verdict):
    found = records(tmp_path, [(0.3, 0.2), (0.3001, 0.2), (0.2999, 0.2)])
    assert difference_is(PAIR, paper, last_ten)(found)[0] == verdict


def test_every_claim_has_a_verdict_without_records():
    table = claims.verdicts(Records({}))
    assert len(table) >= 20
    assert set(table["verdict"]) == {NOT_TESTED}
    assert table["claim"].is_unique


def test_percentages_are_those_of_the_papers_table():
    """5.44, 4.93, 10.22 and 10.42 are differences of Table 1."""
    ours = papers_number("table1", "cifar10", 1, "fedavg+entropy")[0]
    differences = [ours - papers_number("table1", "cifar10", 1, method)[0] for method in claims.BASELINES]
    assert differences == pytest.approx([5.44, 4.93, 10.22, 10.42])
