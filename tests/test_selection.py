"""Algorithm 2's pools, every transition; the uniform rule; the authors' values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedentropy_core.selection import Pools, PoolsAuthors, Uniform, Value, make_selection


class Scripted:
    """A generator whose ε-greedy toss is given; everything else is drawn for real."""

    def __init__(self, toss, seed=0):
        self.toss, self.rng = toss, np.random.default_rng(seed)

    def random(self):
        return self.toss

    def choice(self, *args, **kwargs):
        return self.rng.choice(*args, **kwargs)


POSITIVE, NEGATIVE = Scripted(0.79), Scripted(0.8)


def test_everyone_starts_positive():
    pools = Pools(5, 0.8)
    assert (pools.positive, pools.negative) == ({0, 1, 2, 3, 4}, set())


def test_drawn_devices_leave_and_return_by_the_judgment():
    pools = Pools(6, 0.8)
    chosen = pools.draw(3, POSITIVE)
    assert len(set(chosen)) == 3
    assert pools.positive == set(range(6)) - set(chosen)
    pools.settle(chosen[:2], chosen[2:])
    assert pools.negative == {chosen[2]}
    assert pools.positive == set(range(6)) - {chosen[2]}


def test_a_negative_device_that_is_kept_becomes_positive():
    pools = Pools(4, 0.8)
    pools.positive, pools.negative = {0, 1}, {2, 3}
    chosen = pools.draw(2, NEGATIVE)
    assert set(chosen) == {2, 3}
    pools.settle((2,), (3,))
    assert (pools.positive, pools.negative) == ({0, 1, 2}, {3})


def test_toss_decides_the_pool():
    pools = Pools(10, 0.8)
    pools.positive, pools.negative = set(range(5)), set(range(5, 10))
    assert set(pools.draw(3, POSITIVE)) <= set(range(5))
    assert set(pools.draw(3, NEGATIVE)) <= set(range(5, 10))


def test_a_short_negative_pool_gives_all_it_has():
    pools = Pools(10, 0.8)
    pools.positive, pools.negative = set(range(8)), {8, 9}
    chosen = pools.draw(5, NEGATIVE)
    assert set(chosen[:2]) == {8, 9}
    assert len(set(chosen)) == 5
    assert pools.negative == set()


def test_a_short_positive_pool_gives_all_it_has():
    pools = Pools(10, 0.8)
    pools.positive, pools.negative = {4}, set(range(10)) - {4}
    chosen = pools.draw(5, POSITIVE)
    assert chosen[0] == 4
    assert len(set(chosen)) == 5
    assert pools.positive == set()


def test_an_empty_negative_pool_falls_back_on_the_positive():
    assert len(Pools(10, 0.8).draw(5, NEGATIVE)) == 5


@pytest.mark.parametrize("rule", [Pools, PoolsAuthors])
@given(devices=st.integers(1, 30), data=st.data())
def test_nobody_is_lost(rule, devices, data):
    pools, rng = rule(devices, 0.8), np.random.default_rng(data.draw(st.integers(0, 99)))
    for _ in range(5):
        chosen = pools.draw(data.draw(st.integers(1, devices)), rng)
        assert len(set(chosen)) == len(chosen)
        cut = data.draw(st.integers(1, len(chosen)))
        pools.settle(chosen[:cut], chosen[cut:])
        assert pools.positive | pools.negative == set(range(devices))
        assert not pools.positive & pools.negative


def authors_pools(positive, negative):
    pools = PoolsAuthors(10, 0.8)
    pools.positive, pools.negative = set(positive), set(negative)
    return pools


@pytest.mark.parametrize(
    ("toss", "positive", "negative", "m", "drawn"),
    [
        (POSITIVE, range(5), range(5, 10), 3, range(5)),  # the toss's pool has enough
        (NEGATIVE, range(5), range(5, 10), 3, range(5, 10)),
        (NEGATIVE, range(8), (8, 9), 3, range(8)),  # it has too few: the other one
        (POSITIVE, (0, 1), range(2, 10), 3, range(2, 10)),
        (POSITIVE, (0, 1, 2), range(3, 10), 3, range(3)),  # just enough
    ],
)
def test_the_authors_pools_are_never_mixed(toss, positive, negative, m, drawn):
    pools = authors_pools(positive, negative)
    chosen = pools.draw(m, toss)
    assert len(set(chosen)) == m
    assert set(chosen) <= set(drawn)
    assert pools.positive | pools.negative == set(range(10)) - set(chosen)


@pytest.mark.parametrize("toss", [0.79, 0.8])
def test_where_neither_pool_is_enough_the_authors_are_ours(toss):
    authors, ours = authors_pools(range(4), range(4, 10)), Pools(10, 0.8)
    ours.positive, ours.negative = set(range(4)), set(range(4, 10))
    assert authors.draw(8, Scripted(toss, seed=3)) == ours.draw(8, Scripted(toss, seed=3))


def test_frequency_of_the_pools_is_epsilon():
    """4,000 tosses of probability 0.8: the share lies within five standard deviations."""
    rng, hits = np.random.default_rng(0), 0
    for _ in range(4000):
        pools = Pools(20, 0.8)
        pools.positive, pools.negative = set(range(10)), set(range(10, 20))
        hits += pools.draw(1, rng)[0] < 10
    assert abs(hits / 4000 - 0.8) < 5 * np.sqrt(0.8 * 0.2 / 4000)


@pytest.mark.parametrize("rule", [Uniform(20), Pools(20, 1.0), Value(20, 1.0)], ids=["uniform", "pools", "value"])
def test_draws_are_uniform_at_first(rule):
    rng, counts = np.random.default_rng(1), np.zeros(20)
    for _ in range(4000):
        chosen = rule.draw(5, rng)
        counts[list(chosen)] += 1
        if isinstance(rule, Pools):
            rule.settle(chosen, ())
    assert np.abs(counts / 4000 - 0.25).max() < 5 * np.sqrt(0.25 * 0.75 / 4000)


def test_values_rise_by_one_and_halve():
    value = Value(4, 0.8)
    value.settle((0, 1), (2,))
    value.settle((0,), (1, 2))
    assert value.values.tolist() == [3, 1, 0.25, 1]


def test_values_are_the_odds_of_a_draw():
    value, rng = Value(3, 1.0), np.random.default_rng(2)
    value.values[:] = [6, 3, 1]
    first = np.bincount([value.draw(1, rng)[0] for _ in range(5000)], minlength=3) / 5000
    assert first == pytest.approx([0.6, 0.3, 0.1], abs=0.035)


def test_values_are_ignored_when_the_toss_says_so():
    value, rng = Value(3, 0.0), np.random.default_rng(2)
    value.values[:] = [6, 3, 1]
    first = np.bincount([value.draw(1, rng)[0] for _ in range(5000)], minlength=3) / 5000
    assert first == pytest.approx([1 / 3] * 3, abs=0.035)


def test_a_device_removed_forever_can_still_be_drawn():
    value = Value(3, 1.0)
    for _ in range(2000):
        value.settle((), (0, 1))
    assert len(set(value.draw(3, np.random.default_rng(0)))) == 3


@pytest.mark.parametrize("rule", ["uniform", "pools", "pools-authors", "value"])
def test_state_survives_a_checkpoint(rule):
    original, copy = make_selection(rule, 30, 0.8), make_selection(rule, 30, 0.8)
    rng = np.random.default_rng(0)
    for _ in range(10):
        chosen = original.draw(6, rng)
        original.settle(chosen[:3], chosen[3:])
    copy.restore({name: array.copy() for name, array in original.state().items()})
    for seed in range(10):
        draws = [rule.draw(6, np.random.default_rng(seed)) for rule in (original, copy)]
        assert draws[0] == draws[1]
        original.settle(draws[0], ())
        copy.settle(draws[1], ())
