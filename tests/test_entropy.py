"""Algorithm 1 against hand-worked examples, a brute-force greedy, and its invariants."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedentropy_core import judge
from fedentropy_core.judgment import entropy, group_entropy, log


def plain_entropy(distribution) -> float:
    return -sum(p * math.log(p) for p in distribution if p > 0)


def plain_group_entropy(soft_labels, sizes, group) -> float:
    total = sum(sizes[k] for k in group)
    classes = range(len(soft_labels[0]))
    return plain_entropy([sum(sizes[k] * soft_labels[k][c] for k in group) / total for c in classes])


def plain_greedy(soft_labels, sizes):
    """Algorithm 1 as one reads it, with lists and loops."""
    kept, removed = list(range(len(sizes))), []
    entropies = [plain_group_entropy(soft_labels, sizes, kept)]
    while len(kept) > 1:
        best, index = entropies[-1] + 1e-12, None
        for k in kept:
            candidate = plain_group_entropy(soft_labels, sizes, [i for i in kept if i != k])
            if candidate > best + (1e-12 if index is not None else 0):
                best, index = candidate, k
        if index is None:
            break
        kept.remove(index)
        removed.append(index)
        entropies.append(best)
    return tuple(kept), tuple(removed), entropies


@st.composite
def groups(draw, most=8):
    devices, classes = draw(st.integers(1, most)), draw(st.integers(2, 6))
    counts = st.lists(st.integers(0, 50), min_size=classes, max_size=classes).filter(any)
    rows = np.array([draw(counts) for _ in range(devices)], dtype=float)
    sizes = np.array(draw(st.lists(st.integers(1, 1000), min_size=devices, max_size=devices)))
    return rows / rows.sum(axis=1, keepdims=True), sizes


def test_the_surplus_label_is_removed():
    """Labels A A B C: without one A the group is uniform over three labels, ln 3."""
    judgment = judge(np.eye(3)[[0, 0, 1, 2]], [5, 5, 5, 5])
    assert judgment.kept == (1, 2, 3)
    assert judgment.removed == (0,)
    assert judgment.entropies == pytest.approx([1.5 * math.log(2), math.log(3)])


def test_sizes_weigh():
    """90 images of A against 10 of B and 10 of C: without the large device B and C are even."""
    judgment = judge(np.eye(3), [90, 10, 10])
    assert judgment.removed == (0,)
    assert judgment.entropies[1] == pytest.approx(math.log(2))


def test_a_uniform_group_is_kept_whole():
    assert judge(np.eye(4), [7, 7, 7, 7]).removed == ()


def test_a_device_of_mixed_labels_survives_one_hot_ones():
    """(.5 .5) and two of (1 0): removing both one-hot devices in turn leaves the even one."""
    judgment = judge([[1, 0], [0.5, 0.5], [1, 0]], [1, 1, 1])
    assert judgment.kept == (1,)
    assert judgment.removed == (0, 2)


def test_ties_go_to_the_earlier_device():
    assert judge(np.eye(2)[[0, 1, 0, 1, 0]], [1] * 5).removed == (0,)


def test_equal_devices_are_not_removed_for_rounding():
    """Removing any of ten equal devices changes nothing but the last bit."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        assert judge(np.tile(rng.dirichlet(np.ones(7)), (10, 1)), rng.integers(1, 99, 10)).removed == ()


def test_one_label_only_is_kept():
    judgment = judge(np.eye(3)[[1, 1, 1]], [1, 2, 3])
    assert judgment.kept == (0, 1, 2)
    assert judgment.entropies == (0.0,)


def test_a_single_device_is_kept():
    judgment = judge([[0.2, 0.8]], [3])
    assert (judgment.kept, judgment.removed) == ((0,), ())


@given(groups())
def test_same_as_brute_force(group):
    kept, removed, entropies = plain_greedy(*group)
    judgment = judge(*group)
    assert (judgment.kept, judgment.removed) == (kept, removed)
    assert judgment.entropies == pytest.approx(entropies, abs=1e-12)


@given(groups(most=20))
def test_entropy_never_falls_and_nobody_is_lost(group):
    judgment = judge(*group)
    assert all(later > earlier for earlier, later in zip(judgment.entropies, judgment.entropies[1:], strict=False))
    assert sorted(judgment.kept + judgment.removed) == list(range(len(group[1])))
    assert len(judgment.kept) >= 1
    assert len(judgment.entropies) == len(judgment.removed) + 1
    kept = list(judgment.kept)
    assert judgment.entropies[-1] == pytest.approx(plain_group_entropy(*group, kept), abs=1e-12)


@given(st.integers(2, 12), st.integers(0, 10_000))
def test_order_does_not_matter_without_ties(devices, seed):
    rng = np.random.default_rng(seed)
    soft_labels, sizes = rng.dirichlet(np.ones(5), devices), rng.integers(1, 100, devices)
    order = rng.permutation(devices)
    shuffled = judge(soft_labels[order], sizes[order])
    assert set(order[list(shuffled.kept)].tolist()) == set(judge(soft_labels, sizes).kept)


def test_size_scale_does_not_matter():
    rng = np.random.default_rng(3)
    soft_labels, sizes = rng.dirichlet(np.ones(10), 10), rng.integers(1, 100, 10)
    assert judge(soft_labels, sizes).removed == judge(soft_labels, sizes * 1000).removed


@pytest.mark.parametrize(
    ("soft_labels", "sizes", "message"),
    [
        ([[0.5, 0.5], [np.nan, 1]], [1, 1], "device 1: not finite"),
        ([[0.5, 0.5], [np.inf, 0]], [1, 1], "device 1: not finite"),
        ([[0.5, 0.5], [-0.5, 1.5]], [1, 1], "device 1: negative"),
        ([[0.5, 0.5], [0.5, 0.4]], [1, 1], "device 1: sums to 0.9"),
        ([[0.0, 0.0], [0.5, 0.5]], [1, 1], "device 0: sums to 0"),
        ([[0.5, 0.5], [0.5, 0.5]], [1, 0], "device 1: size must be positive"),
        ([[0.5, 0.5], [0.5, 0.5]], [-3, 1], "device 0: size must be positive"),
        ([[0.5, 0.5], [0.5, 0.5]], [1], "2 soft labels but sizes of shape"),
        ([[0.5, 0.5], [1.0]], [1, 1], "device 1: 1 classes, where device 0 has 2"),
        ([0.5, 0.5], [1, 1], "must be a matrix"),
        (np.zeros((0, 3)), [], "must be a matrix"),
    ],
)
def test_bad_input_is_named(soft_labels, sizes, message):
    with pytest.raises(ValueError, match=message):
        judge(soft_labels, sizes)


def test_rounded_soft_labels_are_accepted():
    assert judge([[0.3334, 0.3333, 0.3332], [1, 0, 0]], [1, 1]).kept == (0,)


@given(st.floats(1e-300, 1e300))
def test_log_is_the_logarithm(x):
    assert float(log(x)) == pytest.approx(math.log(x), rel=1e-15, abs=1e-16)


def test_entropy_of_known_distributions():
    assert entropy([0.25] * 4) == pytest.approx(math.log(4))
    assert entropy([1.0, 0.0]) == 0
    assert entropy([[0.5, 0.5], [1.0, 0.0]]) == pytest.approx([math.log(2), 0])
    assert group_entropy([[1, 0], [0, 1]], [1, 3]) == pytest.approx(plain_entropy([0.25, 0.75]))
