"""The study of the paper's setting beside the mirrored one: which verdicts they share, and what mirroring does.

Seed 0 has the same partition in both, so its pairs differ by mirroring alone. What the partition does is the spread
between the mirrored seeds, each of which has its own.
"""

import numpy as np
import pandas as pd

from fedentropy_core.paper.claims import Claim, Verdict
from fedentropy_core.paper.comparisons import Direction
from fedentropy_core.report.looks import DATASET_NAMES, NAMES


def shared_verdicts(paper: list[tuple[Claim, Verdict]], mirrored: list[tuple[Claim, Verdict]]) -> pd.DataFrame:
    """The claims that either study decides, and what each says."""
    rows = [
        (claim.text, one.direction.value, other.direction.value)
        for (claim, one), (_, other) in zip(paper, mirrored, strict=True)
        if (one.rows or other.rows) and {one.direction, other.direction} != {Direction.UNTESTED}
    ]
    return pd.DataFrame(rows, columns=["the paper says", "paper's setting", "mirrored"])


def mirroring_alone(paper: pd.DataFrame, mirrored: pd.DataFrame, measure: str = "last_hundred") -> pd.DataFrame:
    """A row a data set, case and variant of seed 0 that both have: the accuracies, their difference, and the deviation
    between the mirrored seeds."""
    keys = ["dataset", "case", "variant"]
    spread = mirrored.groupby(keys)[measure].std()
    one, other = (frame[frame["seed"] == 0].set_index(keys)[measure] for frame in (paper, mirrored))
    rows = [
        (DATASET_NAMES[dataset], case, NAMES[variant], one[key], other[key], other[key] - one[key], spread[key])
        for key in one.index
        for dataset, case, variant in [key]
        if key in other.index
    ]
    names = ["data", "case", "method", "paper's setting", "mirrored", "mirroring adds", "deviation of mirrored seeds"]
    return pd.DataFrame(rows, columns=names)


def mean_effect(table: pd.DataFrame) -> tuple[float, int]:
    """What mirroring adds on average over the pairs, and how many there are."""
    return (float(table["mirroring adds"].mean()) if len(table) else np.nan), len(table)
