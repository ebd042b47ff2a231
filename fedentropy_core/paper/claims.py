"""What the paper says of its results, and how each sentence is decided. Long, since the sentences are many."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedentropy_core.paper.comparisons import BEST, Cells, Direction, Judged, Pair, judge_accuracy, judge_target
from fedentropy_core.paper.messages import (
    downlink_is_the_same,
    scaffold_doubles,
    soft_labels_are_negligible,
    upload_is_at_most_fedavgs,
)
from fedentropy_core.paper.observed import entropy_and_accuracy, heterogeneity_rises
from fedentropy_core.paper.protocol import CONFIDENCE, POWER
from fedentropy_core.paper.reported import BASELINES
from fedentropy_core.paper.study import PAPER_CASES
from fedentropy_core.report.looks import DATASET_NAMES, NAMES
from fedentropy_core.report.statistics import holm

OURS = "fedavg+entropy"
DATASETS = ("cifar10", "cifar100", "cinic10")


@dataclass(frozen=True)
class Verdict:
    """`size`: whether our numbers agree with the paper's, or why that cannot be asked. `rows`: what was compared."""

    direction: Direction
    size: str
    decided_by: str
    seeds: str
    rows: tuple[Judged, ...] = ()


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, where it stands, and how it is decided."""

    place: str
    text: str
    decide: Callable[[pd.DataFrame], Verdict]


# ------------------------------------------------------------------------------------------------ rules


def every(pairs: Sequence[Pair], judge: Callable[[Cells, Pair], Judged], decided_by: str) -> Callable:
    """A claim that all comparisons hold: no correction for their number, but one that fails by Holm's is enough
    against it. It is underpowered if all point the claimed way and they would hardly all hold if they were true."""

    def decide(frame: pd.DataFrame) -> Verdict:
        cells = Cells(frame)
        rows = tuple(judge(cells, pair) for pair in pairs)
        return Verdict(_all(rows), _sizes(rows), decided_by, _seeds(rows), rows)

    return decide


def most(settings: Sequence[Sequence[Pair]], judge: Callable[[Cells, Pair], Judged], decided_by: str) -> Callable:
    """A claim about most settings, each of which holds if all its comparisons do and fails if one does."""

    def decide(frame: pd.DataFrame) -> Verdict:
        cells = Cells(frame)
        judged = [tuple(judge(cells, pair) for pair in pairs) for pairs in settings]
        verdicts, rows = [_all(each) for each in judged], tuple(row for each in judged for row in each)
        holding, failing = verdicts.count(Direction.HOLDS), verdicts.count(Direction.FAILS)
        direction = Direction.UNTESTED if Direction.UNTESTED in verdicts else Direction.OPEN
        if holding > len(settings) / 2:
            direction = Direction.HOLDS
        elif failing >= len(settings) / 2:
            direction = Direction.FAILS
        counted = f"{decided_by}; holds in {holding} of {len(settings)} data sets and cases, fails in {failing}"
        return Verdict(direction, "no number", counted, _seeds(rows), rows)

    return decide


def fact(found: Callable[[pd.DataFrame], tuple[bool | None, str]]) -> Callable:
    """A claim that is true or false whatever the seed, such as one on the size of messages."""

    def decide(frame: pd.DataFrame) -> Verdict:
        true, why = found(frame)
        direction = Direction.UNTESTED if true is None else Direction.HOLDS if true else Direction.FAILS
        return Verdict(direction, "no number", why, "—")

    return decide


def untested(why: str) -> Callable:
    return lambda frame: Verdict(Direction.UNTESTED, "no number", why, "—")


def _all(rows: Sequence[Judged]) -> Direction:
    directions = [row.direction for row in rows]
    if not rows or all(direction is Direction.UNTESTED for direction in directions):
        return Direction.UNTESTED
    if any(
        row.direction is Direction.FAILS and p < 1 - CONFIDENCE for row, p in zip(rows, _adjusted(rows), strict=True)
    ):
        return Direction.FAILS
    if Direction.UNTESTED in directions:
        return Direction.UNTESTED
    if set(directions) == {Direction.HOLDS}:
        return Direction.HOLDS
    powers = [row.power for row in rows if not np.isnan(row.power)]
    claimed_way = all(row.mean > 0 for row in rows)
    return Direction.UNDERPOWERED if claimed_way and powers and np.prod(powers) < POWER else Direction.OPEN


def _adjusted(rows: Sequence[Judged]) -> np.ndarray:
    """Holm's p-values; a target that is missed with every seed has none, and counts as it is."""
    measured = np.array([not np.isnan(row.low) for row in rows])
    p = np.zeros(len(rows))
    p[measured] = holm([row.p_value for row in rows if not np.isnan(row.low)])
    return p


def _sizes(rows: Sequence[Judged]) -> str:
    agrees = [row.agrees for row in rows if row.agrees is not None]
    if not agrees:
        return "no number"
    return ("agrees" if all(agrees) else "differs") + (f" ({sum(agrees)} of {len(agrees)})" if len(agrees) > 1 else "")


def _seeds(rows: Sequence[Judged]) -> str:
    seeds = sorted({row.seeds for row in rows if row.seeds})
    return "—" if not seeds else str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"


# ------------------------------------------------------------------------------------------------ what is compared


def _rounds(cells: Cells, pair: Pair) -> Judged:
    return judge_target(cells, pair, "rounds")


def _smooth_rounds(cells: Cells, pair: Pair) -> Judged:
    return judge_target(cells, pair, "smooth_rounds")


def _megabytes(cells: Cells, pair: Pair) -> Judged:
    return judge_target(cells, pair, "megabytes")


def _best_round(cells: Cells, pair: Pair) -> Judged:
    return judge_accuracy(cells, pair, BEST)


def against_baselines(dataset: str, cases: Sequence[int] = PAPER_CASES) -> list[Pair]:
    return [Pair(dataset, case, OURS, method) for case in cases for method in BASELINES]


def with_entropy(dataset: str, methods: Sequence[str], cases: Sequence[int] = PAPER_CASES) -> list[Pair]:
    """Only FedAvg's gain is within one table of the paper; the others mix the best rounds of Table 3 with Table 1."""
    return [
        Pair(dataset, case, f"{method}+entropy", method, "table1" if method == "fedavg" else "")
        for case in cases
        for method in methods
    ]


BY_ACCURACY = "last hundred rounds"
BY_ROUNDS = "rounds to the target, seed by seed"


def _accuracy() -> list[Claim]:
    """Section 4.2, Table 1 and Figure 2."""
    outperforms = [
        Claim(
            "4.2, Table 1",
            f"Under different heterogeneity FedEntropy outperforms the other methods ({DATASET_NAMES[dataset]})",
            every(against_baselines(dataset), judge_accuracy, BY_ACCURACY),
        )
        for dataset in DATASETS
    ]
    percentages = [
        Claim(
            "4.2",
            f"CIFAR-10 case 1: FedEntropy is {paper} points more accurate than {NAMES[method]}",
            every([Pair("cifar10", 1, OURS, method)], judge_accuracy, BY_ACCURACY),
        )
        for method, paper in zip(BASELINES, ("5.44", "4.93", "10.22", "10.42"), strict=True)
    ]
    settings = [against_baselines(dataset, [case]) for dataset in DATASETS for case in PAPER_CASES]
    highest = Claim(
        "4.2, Figure 2",
        "In most cases FedEntropy achieves the highest accuracy",
        most(settings, judge_accuracy, BY_ACCURACY),
    )
    return [*outperforms, *percentages, highest]


def _communication() -> list[Claim]:
    """Section 4.2, Tables 2 and 6."""
    claims = []
    for dataset, place in (("cifar10", "4.2, Table 2"), ("cifar100", "Appendix, Table 6")):
        name, pairs = DATASET_NAMES[dataset], against_baselines(dataset)
        claims += [
            Claim(place, f"{name}: FedEntropy needs the fewest rounds to the target", every(pairs, _rounds, BY_ROUNDS)),
            Claim(
                "4.2, Figure 2",
                f"{name}: FedEntropy converges faster than the other methods for a given accuracy",
                every(pairs, _smooth_rounds, "rounds until the mean of 20 is at the target, seed by seed"),
            ),
            Claim(
                "4.2",
                f"{name}: FedEntropy has the least communication overhead",
                every(pairs, _megabytes, "bytes uploaded to the target, seed by seed"),
            ),
        ]
    facts = [
        ("The downlink overhead of all methods is the same", downlink_is_the_same),
        ("The communication cost of SCAFFOLD is twice that of traditional methods", scaffold_doubles),
        ("The upload of soft labels is negligible", soft_labels_are_negligible),
        ("In a round FedEntropy uploads at most as much as FedAvg", upload_is_at_most_fedavgs),
    ]
    claims += [Claim("4.2", text, fact(found)) for text, found in facts]
    return [*claims, Claim("4.2", "CINIC-10 shows similar trends", untested("the paper gives no target"))]


def _synergy() -> list[Claim]:
    """Section 4.2, Table 3; appendix, Figure 6."""
    improved = [
        Claim(
            "4.2, Table 3",
            f"{NAMES[method]} is improved significantly by FedEntropy (CIFAR-10)",
            every(with_entropy("cifar10", [method]), judge_accuracy, BY_ACCURACY),
        )
        for method in BASELINES
    ]
    benefits = [
        Claim(
            "Appendix, Figure 6",
            f"All four methods get notable benefits from FedEntropy ({DATASET_NAMES[dataset]})",
            every(with_entropy(dataset, BASELINES), judge_accuracy, BY_ACCURACY),
        )
        for dataset in ("cifar100", "cinic10")
    ]
    scaffold = [Pair("cifar10", case, OURS, "scaffold") for case in PAPER_CASES]
    combined = [
        Pair("cifar10", case, OURS, f"{m}+entropy", "table3")
        for case in PAPER_CASES
        for m in BASELINES
        if m != "fedavg"
    ]
    return [
        *improved,
        *benefits,
        Claim(
            "4.2",
            "FedAvg with FedEntropy can even outperform SCAFFOLD (CIFAR-10)",
            every(scaffold, judge_accuracy, BY_ACCURACY),
        ),
        Claim(
            "4.2, Table 3",
            "Of all combinations FedAvg with FedEntropy is the most accurate (CIFAR-10)",
            every(combined, _best_round, "best round, as Table 3 probably has"),
        ),
    ]


def _parts() -> list[Claim]:
    """Section 4.3, Figure 3, and what is said of the method itself."""
    faster = [Pair(p.dataset, p.case, p.better, p.worse, "") for p in with_entropy("cifar10", BASELINES, cases=[1])]

    def parts(cases: Sequence[int], dataset: str = "cifar10") -> list[Pair]:
        steps = (("fedavg+entropy-no-pools", "fedavg"), (OURS, "fedavg+entropy-no-pools"))
        return [Pair(dataset, case, better, worse, "") for case in cases for better, worse in steps]

    judgment, pools = parts([1])
    elsewhere = [*parts([2, 3]), *parts(PAPER_CASES, "cifar100")]
    return [
        Claim(
            "4.3, Figure 3a",
            "The convergence of all four methods is dramatically improved by FedEntropy (CIFAR-10 case 1)",
            every(faster, _rounds, BY_ROUNDS),
        ),
        Claim(
            "4.3, Figure 3b",
            "The judgment greatly increases the accuracy: without pools it beats FedAvg (CIFAR-10 case 1)",
            every([judgment], judge_accuracy, BY_ACCURACY),
        ),
        Claim(
            "4.3, Figure 3b",
            "The pools greatly increase the accuracy: FedEntropy beats itself without them (CIFAR-10 case 1)",
            every([pools], judge_accuracy, BY_ACCURACY),
        ),
        Claim(
            "4.3",
            "The other cases and data sets have the same trends (both parts help; CIFAR-10 cases 2, 3 and CIFAR-100)",
            every(elsewhere, judge_accuracy, BY_ACCURACY),
        ),
        Claim(
            "3.2",
            "The higher the entropy of the soft labels, the better the aggregation",
            fact(entropy_and_accuracy),
        ),
        Claim("3.3", "FedEntropy converges at a rate of O(1/t), as FedAvg", untested("a rate is no matter of runs")),
        Claim("Appendix, Figure 5", "Heterogeneity increases from case 1 to case 3", fact(heterogeneity_rises)),
    ]


def claims() -> list[Claim]:
    return [*_accuracy(), *_communication(), *_synergy(), *_parts()]


def decide_all(frame: pd.DataFrame) -> list[tuple[Claim, Verdict]]:
    return [(claim, claim.decide(frame)) for claim in claims()]


def claims_table(decided: Sequence[tuple[Claim, Verdict]]) -> pd.DataFrame:
    """A row a claim, short enough to read."""
    rows = [(c.place, c.text, v.direction.value, v.size, v.decided_by, v.seeds) for c, v in decided]
    return pd.DataFrame(rows, columns=["where", "the paper says", "direction", "size", "decided by", "seeds"])


def comparisons_table(decided: Sequence[tuple[Claim, Verdict]]) -> pd.DataFrame:
    """The numbers behind the verdicts: a row a comparison of a claim."""
    rows = [
        (
            number,
            DATASET_NAMES[row.pair.dataset],
            row.pair.case,
            NAMES[row.pair.better],
            NAMES[row.pair.worse],
            row.measure.replace("_", " "),
            *(row.mean, row.low, row.high, row.seeds, row.direction.value),
            *(row.paper, row.paper_error, row.ours, row.ours_error),
            {True: "agrees", False: "differs", None: ""}[row.agrees],
            row.remark,
        )
        for number, (_, verdict) in enumerate(decided, start=1)
        for row in verdict.rows
    ]
    names = ["claim", "data", "case", "ahead", "behind", "measure", "ours", "low", "high", "seeds", "direction"]
    papers = ["paper", "paper's error", "ours, its measure", "our error", "size", "remark"]
    return pd.DataFrame(rows, columns=[*names, *papers])


def counted(decided: Sequence[tuple[Claim, Verdict]]) -> dict[str, int]:
    """How many claims there are by direction."""
    return {d.value: sum(verdict.direction is d for _, verdict in decided) for d in Direction}
