"""What findings of several topics need."""

from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd

from fedentropy_core.data.catalogue import SPECS
from fedentropy_core.paper.study import PAPER_CASES
from fedentropy_core.paper.tables import paired
from fedentropy_core.report.findings import listed

OURS = "fedavg+entropy"
LIKE_FEDAVG = ("fedavg", "fedprox", "moon")  # the baselines that change local training a little
DECIDES = "last_hundred"


def places(runs: pd.DataFrame, dataset: str, one: str, other: str) -> Iterator[tuple[int, pd.DataFrame]]:
    """Each case of a data set in which both variants have a seed, with their pairs."""
    for case in PAPER_CASES:
        pairs = paired(runs, dataset, case, one, other)
        if len(pairs):
            yield case, pairs


def in_cases(cases: Iterable[int]) -> str:
    """Case 2, or cases 1 and 2."""
    cases = list(cases)
    return f"case{'s' * (len(cases) > 1)} {listed(cases)}"


def gain(pairs: pd.DataFrame, measure: str = DECIDES) -> np.ndarray:
    """Points by which the first variant is ahead, a value a seed."""
    return (pairs[measure] - pairs[f"{measure}_other"]).to_numpy(dtype=float)


def datasets(runs: pd.DataFrame) -> list[str]:
    """Those with runs, in the paper's order."""
    return [name for name in (*SPECS, "synthetic") if name in set(runs["dataset"])]
