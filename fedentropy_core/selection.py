"""Who is picked each round: uniformly, from the two pools of Algorithm 2, or as either version of the authors' code.

A rule draws m devices, then settles: it is told who was kept and who was removed. `state` and `restore` carry
what it remembers through a checkpoint.
"""

from typing import Protocol

import numpy as np


class Selection(Protocol):
    def draw(self, m: int, rng: np.random.Generator) -> tuple[int, ...]: ...

    def settle(self, kept: tuple[int, ...], removed: tuple[int, ...]) -> None: ...

    def state(self) -> dict[str, np.ndarray]: ...

    def restore(self, state: dict[str, np.ndarray]) -> None: ...


class Uniform:
    """m devices uniformly without replacement: FedAvg and the other baselines, and FedEntropy without pools."""

    def __init__(self, devices: int):
        self.devices = devices

    def draw(self, m: int, rng: np.random.Generator) -> tuple[int, ...]:
        return tuple(rng.choice(self.devices, m, replace=False).tolist())

    def settle(self, kept: tuple[int, ...], removed: tuple[int, ...]) -> None:
        pass

    def state(self) -> dict[str, np.ndarray]:
        return {}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        pass


class Pools:
    """Algorithm 2: with probability ε from the positive pool, else from the negative one.

    All devices start positive. A short pool gives all it has and the other pool the rest.
    """

    def __init__(self, devices: int, epsilon: float):
        self.epsilon = epsilon
        self.positive = set(range(devices))
        self.negative: set[int] = set()

    def draw(self, m: int, rng: np.random.Generator) -> tuple[int, ...]:
        first, second = self.positive, self.negative
        if rng.random() >= self.epsilon:
            first, second = second, first
        first, second = self.order(first, second, m)
        chosen = _sample(first, min(m, len(first)), rng)
        chosen += _sample(second, m - len(chosen), rng)
        self.positive -= set(chosen)
        self.negative -= set(chosen)
        return chosen

    def order(self, first: set[int], second: set[int], m: int) -> tuple[set[int], set[int]]:
        """The pool that is drawn from, and the one that fills up what it lacks; `first` is the toss's."""
        return first, second

    def settle(self, kept: tuple[int, ...], removed: tuple[int, ...]) -> None:
        self.positive |= set(kept)
        self.negative |= set(removed)

    def state(self) -> dict[str, np.ndarray]:
        return {"positive": np.array(sorted(self.positive), dtype=np.int64)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        everyone = self.positive | self.negative
        self.positive = set(state["positive"].tolist())
        self.negative = everyone - self.positive


class PoolsAuthors(Pools):
    """The authors' code of June 2022: no filling up, a short pool leaves the draw to the other one.

    Where neither has m devices, which 100 devices and m = 10 never meet, it is Pools.
    """

    def order(self, first: set[int], second: set[int], m: int) -> tuple[set[int], set[int]]:
        return (second, first) if len(first) < m <= len(second) else (first, second)


class Value:
    """The authors' code of October 2022: a value a device, 1 at first, +1 when kept, halved when removed.

    With probability ε devices are drawn in proportion to their values, else uniformly.
    """

    def __init__(self, devices: int, epsilon: float):
        self.epsilon = epsilon
        self.values = np.ones(devices)

    def draw(self, m: int, rng: np.random.Generator) -> tuple[int, ...]:
        weighted = rng.random() < self.epsilon
        share = self.values / np.cumsum(self.values)[-1] if weighted else None
        return tuple(rng.choice(len(self.values), m, replace=False, p=share).tolist())

    def settle(self, kept: tuple[int, ...], removed: tuple[int, ...]) -> None:
        self.values[list(kept)] += 1
        # A value that underflowed to zero could never be drawn again, and m positive values are needed.
        self.values[list(removed)] = np.maximum(self.values[list(removed)] / 2, np.finfo(np.float64).tiny)

    def state(self) -> dict[str, np.ndarray]:
        return {"values": self.values}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self.values = state["values"].copy()


def cohort_size(fraction: float, devices: int) -> int:
    """m = max(1, round(C·N)), halves rounded up."""
    return max(1, int(fraction * devices + 0.5))


def make_selection(rule: str, devices: int, epsilon: float) -> Selection:
    """The rule by its name in RunConfig.selection."""
    if rule == "uniform":
        return Uniform(devices)
    return {"pools": Pools, "pools-authors": PoolsAuthors, "value": Value}[rule](devices, epsilon)


def _sample(pool: set[int], m: int, rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(rng.choice(sorted(pool), m, replace=False).tolist()) if m else ()
