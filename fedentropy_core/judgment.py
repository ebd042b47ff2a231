"""Maximum entropy judgment: the paper's Algorithm 1.

Sums run in one fixed order and the logarithm is our own, so that a judgment is the same to the last bit on any
CPU; numpy's and libm's logarithms differ between machines.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SUM_TOLERANCE = 1e-3
RESOLUTION = 1e-12  # entropies closer than this are equal: they differ by rounding only


@dataclass(frozen=True)
class Judgment:
    """kept, removed: positions in the given order, removed in the order of removal.

    entropies: the group's entropy before any removal, then after each one.
    """

    kept: tuple[int, ...]
    removed: tuple[int, ...]
    entropies: tuple[float, ...]


def judge(soft_labels: np.ndarray, sizes: np.ndarray) -> Judgment:
    """Greedily removes the device whose removal raises the group's entropy most, while one does.

    The group's distribution is Σ l_k p_k / Σ l_k over the kept devices. Ties go to the earlier device; the last
    device is never removed.
    """
    _check_lengths(soft_labels)
    soft_labels, sizes = np.asarray(soft_labels, dtype=np.float64), np.asarray(sizes, dtype=np.float64)
    check_soft_labels(soft_labels, sizes)
    kept, removed = np.arange(len(sizes)), []
    mass = soft_labels * sizes[:, None]
    entropies = [group_entropy(soft_labels, sizes)]
    while len(kept) > 1:
        without = np.maximum(_sum(mass) - mass, 0) / (_sum(sizes) - sizes)[:, None]
        near = _near_best(without)
        candidates = entropy(without[near])
        best = candidates.max()
        if best <= entropies[-1] + RESOLUTION:
            break
        first = int(np.argmax(candidates >= best - RESOLUTION))
        worst = near[first]
        entropies.append(float(candidates[first]))
        removed.append(int(kept[worst]))
        kept, mass, sizes = (np.delete(array, worst, axis=0) for array in (kept, mass, sizes))
    return Judgment(tuple(kept.tolist()), tuple(removed), tuple(entropies))


def keep_all(soft_labels: np.ndarray, sizes: np.ndarray) -> Judgment:
    """No judgment, as in a round without FedEntropy: every device is kept, the group's entropy is noted."""
    return Judgment(tuple(range(len(sizes))), (), (group_entropy(soft_labels, sizes),))


def _near_best(distributions: np.ndarray) -> np.ndarray:
    """The rows that may have the largest entropy, by numpy's fast logarithm, which errs by far less than 1e-9."""
    rough = -(distributions * np.log(np.maximum(distributions, np.finfo(np.float64).tiny))).sum(axis=1)
    return np.flatnonzero(rough >= rough.max() - 1e-9)


def group_entropy(soft_labels: np.ndarray, sizes: np.ndarray) -> float:
    """Entropy of Σ l_k p_k / Σ l_k."""
    sizes = np.asarray(sizes, dtype=np.float64)
    return float(entropy(_sum(np.asarray(soft_labels, dtype=np.float64) * sizes[:, None]) / _sum(sizes)))


def entropy(distribution: np.ndarray) -> np.ndarray:
    """−Σ p·ln p over the last axis, with 0·ln 0 = 0."""
    p = np.ascontiguousarray(np.moveaxis(np.asarray(distribution, dtype=np.float64), -1, 0))
    return -_sum(p * log(np.where(p > 0, p, 1.0)))


def log(x: np.ndarray) -> np.ndarray:
    """Natural logarithm of positive normal numbers within 2e-16 relative or absolute, the same bits on any CPU.

    x = m·2^e with m in [√½, √2); ln m = 2·artanh s = 2·(s + s³/3 + s⁵/5 + …) with s = (m−1)/(m+1), |s| < 0.172.
    """
    m, e = np.frexp(np.asarray(x, dtype=np.float64))
    small = m < 0.7071067811865476
    m, e = np.where(small, 2 * m, m), e - small
    s = (m - 1) / (m + 1)
    z = s * s
    series = np.full_like(s, 1 / 21)
    for odd in range(19, 1, -2):
        series = series * z + 1 / odd
    return e * 0.6931471805599453 + 2 * (s + s * z * series)


def _check_lengths(soft_labels: Sequence) -> None:
    """Before they are a matrix: a ValueError names the first device with another number of classes than device 0."""
    lengths = [np.size(label) for label in soft_labels]
    for device, length in enumerate(lengths):
        if length != lengths[0]:
            raise ValueError(f"soft label of device {device}: {length} classes, where device 0 has {lengths[0]}")


def check_soft_labels(soft_labels: np.ndarray, sizes: np.ndarray) -> None:
    """Raises a ValueError that names the first bad device."""
    if soft_labels.ndim != 2 or 0 in soft_labels.shape:
        raise ValueError(f"soft labels must be a matrix [devices, classes]; got shape {soft_labels.shape}")
    if sizes.shape != soft_labels.shape[:1]:
        raise ValueError(f"{len(soft_labels)} soft labels but sizes of shape {sizes.shape}")
    for device, (label, size) in enumerate(zip(soft_labels, sizes, strict=True)):
        problem = soft_label_problem(label, size)
        if problem:
            raise ValueError(f"soft label of device {device}: {problem}")


def soft_label_problem(soft_label: np.ndarray, size: float) -> str | None:
    """What is wrong with one device's soft label or size, if anything."""
    if not np.isfinite(soft_label).all():
        return "not finite"
    if (soft_label < 0).any():
        return f"negative entry {soft_label.min()}"
    if abs(soft_label.sum() - 1) > SUM_TOLERANCE:
        return f"sums to {soft_label.sum()}, not 1"
    if not (np.isfinite(size) and size > 0):
        return f"size must be positive; got {size}"
    return None


def _sum(rows: np.ndarray) -> np.ndarray:
    """Σ over the first axis, strictly from the first to the last; np.sum's order depends on shape and CPU."""
    return np.cumsum(rows, axis=0)[-1]
