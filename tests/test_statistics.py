"""Statistics against hand-worked numbers, brute force, and simulated studies whose truth is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedentropy_core.paper.protocol import CONFIDENCE, COVERAGE_TOLERANCE, STUDIES_SIMULATED
from fedentropy_core.report.statistics import (
    Effect,
    difference,
    holm,
    paired_difference,
    pooled,
    power_of_all,
    seeds_correlate,
    sign_flip,
)

SEEDS, METHODS = 3, 6
numbers = st.floats(-100, 100).map(lambda x: round(x, 3))


def test_pooled_by_hand():
    """Squares 2 and 8 about the means 2 and 5, over 2 + 1 degrees of freedom."""
    spread = pooled([np.array([1.0, 2.0, 3.0]), np.array([3.0, 7.0])])
    assert spread.deviation == pytest.approx(np.sqrt(10 / 3))
    assert spread.freedom == 3
    assert pooled([np.array([4.0])]).freedom == 0


def test_an_interval_by_hand():
    """s = 2, n = 3 and 3: error 2·√(2/3); Student's 97.5 % quantile with 10 degrees of freedom is 2.228."""
    cells = [np.array([0.0, 2.0, 4.0])] * 5
    effect = difference(cells[0] + 7, cells[1], pooled(cells))
    low, high = effect.interval()
    assert effect.mean == 7
    assert (high - low) / 2 == pytest.approx(2.2281 * 2 * np.sqrt(2 / 3), rel=1e-4)


def test_pairs_by_hand():
    effect = paired_difference(np.array([1.0, 2.0, 3.0]))
    assert (effect.mean, effect.freedom, effect.error) == (2, 2, pytest.approx(1 / np.sqrt(3)))
    assert effect.interval()[0] == pytest.approx(2 - 4.3027 / np.sqrt(3), rel=1e-4)


def test_one_seed_decides_nothing():
    effect = paired_difference(np.array([5.0]))
    assert effect.interval() == (-np.inf, np.inf)
    assert effect.p_value() == 1
    assert effect.power(100) == 0


@given(st.lists(numbers, min_size=2, max_size=8), st.lists(numbers, min_size=2, max_size=8))
def test_two_cells_are_students_test(one, other):
    one, other = np.array(one), np.array(other)
    effect = difference(one, other, pooled([one, other]))
    if effect.error > 1e-9:
        expected = stats.ttest_ind(one, other)
        assert effect.p_value() == pytest.approx(expected.pvalue, abs=1e-12)
        assert effect.interval() == pytest.approx(tuple(expected.confidence_interval(0.95)), abs=1e-9)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]).tolist() == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]).tolist() == [1, 1]
    assert holm([]).tolist() == []


def test_sign_flips_by_hand():
    """All eight sums of ±1 ± 2 ± 3 are within 6, which two of them reach."""
    assert sign_flip(np.array([1.0, 2.0, 3.0])) == 2 / 8
    assert sign_flip(np.array([1.0, -1.0])) == 1
    assert sign_flip(np.full(9, 0.3)) == 2 / 512  # nine of nine pairs ahead, as in the first study


def test_too_many_flips_are_refused():
    with pytest.raises(ValueError, match="21 pairs have too many ways"):
        sign_flip(np.ones(21))


# ------------------------------------------------------------------------------------------------ simulated studies


def simulated(seed, truth, deviation=1.5, shared=0.0):
    """Studies of METHODS cells of SEEDS values around their true means; `shared` of the variance is the seed's."""
    rng = np.random.default_rng(seed)
    for _ in range(STUDIES_SIMULATED):
        of_seed = np.sqrt(shared) * rng.normal(size=(1, SEEDS))
        own = np.sqrt(1 - shared) * rng.normal(size=(METHODS, SEEDS))
        yield truth[:, None] + deviation * (of_seed + own)


def share(found):
    return np.mean(list(found))


def test_intervals_hold_the_truth_as_often_as_they_say():
    truth = np.array([0, 1, 2, 3, 5, 8.0])

    def holds(cells):
        low, high = difference(cells[5], cells[2], pooled(cells)).interval(CONFIDENCE)
        return low <= 6 <= high

    assert abs(share(map(holds, simulated(1, truth))) - CONFIDENCE) <= COVERAGE_TOLERANCE


def test_paired_intervals_hold_the_truth_as_often_as_they_say():
    truth = np.array([0, 0.5, 0, 0, 0, 0])

    def holds(cells):
        low, high = paired_difference(cells[1] - cells[0]).interval(CONFIDENCE)
        return low <= 0.5 <= high

    assert abs(share(map(holds, simulated(2, truth, shared=0.99))) - CONFIDENCE) <= COVERAGE_TOLERANCE


def test_choosing_pairs_by_the_correlation_keeps_the_coverage():
    """Tested over six data sets and cases, as the study does; once with seeds that matter and once without."""
    for seed, shared in ((3, 0.0), (4, 0.95)):
        studies, found = list(simulated(seed, np.zeros(METHODS), shared=shared)), []
        for first in range(0, len(studies) - 5, 6):
            cells = studies[first : first + 6]
            pairs = seeds_correlate([(cell[0], cell[1]) for cell in cells])
            for cell in cells:
                effect = paired_difference(cell[0] - cell[1]) if pairs else difference(cell[0], cell[1], pooled(cell))
                low, high = effect.interval(CONFIDENCE)
                found.append(low <= 0 <= high)
        assert abs(share(found) - CONFIDENCE) <= COVERAGE_TOLERANCE


def test_false_verdicts_are_as_rare_as_they_should_be():
    """Of equal methods each side is called ahead in half of the rest."""
    lows, highs = zip(
        *(difference(cells[0], cells[1], pooled(cells)).interval(CONFIDENCE) for cells in simulated(5, np.zeros(6))),
        strict=True,
    )
    for wrong in (np.array(lows) > 0, np.array(highs) < 0):
        assert wrong.mean() <= (1 - CONFIDENCE) / 2 + COVERAGE_TOLERANCE / 2


def test_one_false_failure_in_a_family_is_as_rare_as_holm_says():
    def any_fails(cells):
        effects = [difference(cells[0], other, pooled(cells)) for other in cells[1:]]
        return (holm([effect.p_value() for effect in effects]) < 1 - CONFIDENCE).any()

    assert share(map(any_fails, simulated(6, np.zeros(METHODS)))) <= 1 - CONFIDENCE + COVERAGE_TOLERANCE


def test_the_sign_flips_error_is_at_most_its_level():
    rng = np.random.default_rng(7)
    assert (
        share(sign_flip(rng.normal(size=9)) < 0.05 for _ in range(STUDIES_SIMULATED)) <= 0.05 + COVERAGE_TOLERANCE / 2
    )


@pytest.mark.parametrize("true", [0.5, 2.0, 4.0])
def test_power_is_how_often_such_a_study_decides(true):
    """By the true deviation; a study knows only its own, and its power is right on average."""
    truth = np.zeros(METHODS)
    truth[0] = true
    effects = [difference(cells[0], cells[1], pooled(cells)) for cells in simulated(8, truth)]
    decided = share(effect.interval(CONFIDENCE)[0] > 0 for effect in effects)
    known = Effect(0.0, 1.5 * np.sqrt(2 / SEEDS), effects[0].freedom, SEEDS)
    assert known.power(true, CONFIDENCE) == pytest.approx(decided, abs=0.03)


def test_the_power_of_a_conjunction_is_at_most_what_such_studies_decide():
    """Of a method against all others, whose comparisons share its cell."""
    truth = np.array([4.0, 0, 0, 0, 0, 0])

    def all_hold(cells):
        spread = pooled(cells)
        return all(difference(cells[0], other, spread).interval(CONFIDENCE)[0] > 0 for other in cells[1:])

    decided = share(map(all_hold, simulated(9, truth)))
    known = [Effect(0.0, 1.5 * np.sqrt(2 / SEEDS), 12, SEEDS)] * 5
    assert power_of_all(known, [4.0] * 5) <= decided + 0.02
    assert power_of_all(known, [4.0] * 5) == pytest.approx(known[0].power(4.0) ** 5)


def test_correlated_seeds_are_found():
    rng = np.random.default_rng(10)

    def cells(shared):
        seeds = rng.normal(size=(9, SEEDS))
        return [(s + (1 - shared) * rng.normal(size=SEEDS), s + (1 - shared) * rng.normal(size=SEEDS)) for s in seeds]

    assert seeds_correlate(cells(0.95))
    independent = [(rng.normal(size=SEEDS), rng.normal(size=SEEDS)) for _ in range(9 * 400)]
    found = share(seeds_correlate(independent[k : k + 9]) for k in range(0, len(independent), 9))
    assert found <= 0.05 + 0.03
    assert not seeds_correlate([(np.array([1.0]), np.array([2.0]))])
