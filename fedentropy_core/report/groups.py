"""Every group that devices can form, and the best of them: the exhaustive search beside the greedy judgment.

A group of n devices is a bit mask from 1 to 2^n − 1 whose bit k says that device k is kept. Entropies of all groups
are computed at once, so the best group, and the mean over all groups of a given number of devices (what dropping
devices at random gives), are exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedentropy_core.judgment import RESOLUTION, check_soft_labels

MAX_DEVICES = 20  # a million groups
CHUNK = 2**15  # groups at a time, to bound memory

Group = tuple[int, ...]


@dataclass(frozen=True)
class Groups:
    """Every group of n devices: `entropies[g]` belongs to the devices of the bits of g + 1."""

    devices: int
    entropies: np.ndarray

    @cached_property
    def counts(self) -> np.ndarray:
        """How many devices each group has."""
        return np.bitwise_count(np.arange(1, 2**self.devices)).astype(np.int64)

    @property
    def best(self) -> Group:
        """The group of largest entropy. Ties go to the group with more devices, then to the one with earlier ones."""
        tied = np.flatnonzero(self.entropies >= self.entropies.max() - RESOLUTION)
        largest = tied[self.counts[tied] == self.counts[tied].max()]
        return min(self.members(int(g)) for g in largest)

    def members(self, g: int) -> Group:
        return tuple(k for k in range(self.devices) if (g + 1) >> k & 1)

    def entropy_of(self, group: Sequence[int]) -> float:
        return float(self.entropies[sum(1 << k for k in group) - 1])

    def mean_entropy(self, kept: int) -> float:
        """The mean over all groups of `kept` devices: what keeping that many at random gives."""
        return float(self.entropies[self.counts == kept].mean())


def all_groups(distributions: np.ndarray, sizes: np.ndarray) -> Groups:
    """The entropy of Σ l_k p_k / Σ l_k for each of the 2^n − 1 groups."""
    distributions, sizes = np.asarray(distributions, dtype=np.float64), np.asarray(sizes, dtype=np.float64)
    check_soft_labels(distributions, sizes)
    n = len(sizes)
    if n > MAX_DEVICES:
        raise ValueError(f"{n} devices form too many groups; the exhaustive search takes at most {MAX_DEVICES}")
    mass = distributions * sizes[:, None]
    entropies = np.empty(2**n - 1)
    for start in range(0, len(entropies), CHUNK):
        masks = np.arange(start, min(start + CHUNK, len(entropies))) + 1
        member = (masks[:, None] >> np.arange(n) & 1).astype(np.float64)
        p = member @ mass / (member @ sizes)[:, None]
        entropies[masks - 1] = -(p * np.log(np.maximum(p, np.finfo(np.float64).tiny))).sum(axis=1)
    return Groups(n, entropies)


def best_group(distributions: np.ndarray, sizes: np.ndarray) -> Group:
    """The group of largest entropy among all 2^n − 1."""
    return all_groups(distributions, sizes).best
