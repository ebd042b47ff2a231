"""The claims of the paper's text, each with the paper's numbers, ours, and a verdict that follows from a rule.

A comparison is the difference between two methods on the same data, paired by seed (the same partition and initial
weights), with a 95 % confidence interval over seeds (Student's t). A claim of several comparisons is reproduced if
every difference has the claimed sign. With one seed there is no interval: the claim is "not tested" and the note
says which way the one seed points.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedentropy_core.records import RunRecord
from fedentropy_core.report import DATASET_NAMES, NAMES, TARGETS, Records, papers_number

REPRODUCED, NOT_REPRODUCED, NOT_TESTED = "reproduced", "not reproduced", "not tested"
# Two-sided 95 % quantiles of Student's t with n − 1 degrees of freedom, by the number of seeds n.
T_QUANTILES = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}

BASELINES = ("fedavg", "fedprox", "scaffold", "moon")
CASES = (1, 2, 3)


@dataclass(frozen=True)
class Comparison:
    """better − worse in one data set and case, by a measure for which more is better."""

    dataset: str
    case: int
    better: str
    worse: str


@dataclass(frozen=True)
class Measured:
    """A paired difference over seeds: its mean and the half-width of its interval (NaN with one seed)."""

    comparison: Comparison
    mean: float
    half_width: float
    seeds: int

    def text(self) -> str:
        c = self.comparison
        interval = "" if np.isnan(self.half_width) else f" ± {self.half_width:.2f}"
        place = f"{DATASET_NAMES[c.dataset]} case {c.case}"
        return f"{place}, {NAMES[c.better]} − {NAMES[c.worse]}: {self.mean:+.2f}{interval} ({self.seeds})"


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, where it stands, its numbers, and how to decide it."""

    section: str
    text: str
    paper: str
    decide: Callable[[Records], tuple[str, str, str]]  # verdict, our numbers, note


def last_ten(run: RunRecord) -> float:
    return 100 * run.final_accuracy


def best_round(run: RunRecord) -> float:
    return 100 * run.best_accuracy


def rounds_saved(run: RunRecord) -> float:
    """Minus the rounds to the paper's target, so that more is better; never reached counts as all rounds and one."""
    target = TARGETS[run.config.dataset, run.config.case]
    return -float(run.rounds_to(target) or run.config.rounds + 1)


def bytes_saved(run: RunRecord) -> float:
    """Minus the MB uploaded until the target, or in the whole run where it was never reached."""
    rounds = run.rounds_to(TARGETS[run.config.dataset, run.config.case])
    return -float(run.rounds["bytes_up"].head(rounds or run.config.rounds).sum()) / 1e6


def measure_pair(records: Records, pair: Comparison, measure: Callable[[RunRecord], float]) -> Measured | None:
    """The paired difference over the seeds that both methods have; None if there is none."""
    better, worse = (
        {run.config.seed: measure(run) for run in records.of(pair.dataset, pair.case, method)}
        for method in (pair.better, pair.worse)
    )
    differences = np.array([better[seed] - worse[seed] for seed in sorted(better.keys() & worse.keys())])
    n = len(differences)
    if n == 0:
        return None
    half = T_QUANTILES[n] * differences.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
    return Measured(pair, float(differences.mean()), float(half), n)


def all_better(pairs: Sequence[Comparison], measure: Callable[[RunRecord], float]) -> Callable:
    """Decides a claim that every comparison has a positive difference."""

    def decide(records: Records) -> tuple[str, str, str]:
        found = [measure_pair(records, pair, measure) for pair in pairs]
        measured = [m for m in found if m is not None]
        ours = "; ".join(m.text() for m in measured) or "—"
        right = sum(m.mean > 0 for m in measured)
        clear = sum(m.mean - m.half_width > 0 for m in measured)
        note = f"{right} of {len(measured)} differences have the claimed sign, {clear} beyond their interval"
        if len(measured) < len(pairs):
            return NOT_TESTED, ours, f"{len(pairs) - len(measured)} of {len(pairs)} comparisons have no runs; {note}"
        if min(m.seeds for m in measured) < 2:
            return NOT_TESTED, ours, f"one seed only; {note}"
        return (REPRODUCED if right == len(measured) else NOT_REPRODUCED), ours, note

    return decide


def difference_is(pair: Comparison, paper: float, measure: Callable[[RunRecord], float]) -> Callable:
    """Decides a percentage: reproduced if it lies in our interval, or in one point around our mean if that is wider."""

    def decide(records: Records) -> tuple[str, str, str]:
        measured = measure_pair(records, pair, measure)
        if measured is None:
            return NOT_TESTED, "—", "no runs"
        note = f"the paper's {paper:+.2f} against our {measured.mean:+.2f}"
        if measured.seeds < 2:
            return NOT_TESTED, measured.text(), f"one seed only; {note}"
        close = abs(measured.mean - paper) <= max(measured.half_width, 1.0)
        return (REPRODUCED if close else NOT_REPRODUCED), measured.text(), note

    return decide


def not_tested(why: str) -> Callable:
    return lambda records: (NOT_TESTED, "—", why)


def _against_baselines(dataset: str, cases: Sequence[int] = CASES) -> list[Comparison]:
    return [Comparison(dataset, case, "fedavg+entropy", method) for case in cases for method in BASELINES]


def _with_entropy(datasets: Sequence[str], methods: Sequence[str], cases: Sequence[int] = CASES) -> list[Comparison]:
    return [Comparison(d, case, f"{m}+entropy", m) for d in datasets for case in cases for m in methods]


def _paper_table(table: str, dataset: str, cases: Sequence[int], methods: Sequence[str]) -> str:
    cells = {m: [papers_number(table, dataset, case, m) for case in cases] for m in methods}
    return "; ".join(f"{NAMES[m]} " + " / ".join(f"{c[0]:.2f}" for c in row if c) for m, row in cells.items())


def _accuracy_claims() -> list[Claim]:
    methods = (*BASELINES, "fedavg+entropy")
    outperforms = [
        Claim(
            "4.2",
            f"FedEntropy outperforms the other methods on {DATASET_NAMES[dataset]} under all heterogeneity settings",
            _paper_table("table1", dataset, CASES, methods),
            all_better(_against_baselines(dataset), last_ten),
        )
        for dataset in ("cifar10", "cifar100", "cinic10")
    ]
    percentages = [
        Claim(
            "4.2",
            f"CIFAR-10 case 1: FedEntropy is {paper:.2f} points more accurate than {NAMES[method]}",
            f"{paper:+.2f}",
            difference_is(Comparison("cifar10", 1, "fedavg+entropy", method), paper, last_ten),
        )
        for method, paper in zip(BASELINES, (5.44, 4.93, 10.22, 10.42), strict=True)
    ]
    return outperforms + percentages


def _communication_claims() -> list[Claim]:
    claims = []
    for table, dataset in (("table2", "cifar10"), ("table6", "cifar100")):
        numbers = _paper_table(table, dataset, CASES, (*BASELINES, "fedavg+entropy"))
        name = DATASET_NAMES[dataset]
        pairs = _against_baselines(dataset)
        claims += [
            Claim(
                "4.2" if dataset == "cifar10" else "Appendix",
                f"{name}: FedEntropy needs the fewest rounds to the target in all three cases",
                numbers,
                all_better(pairs, rounds_saved),
            ),
            Claim(
                "4.2" if dataset == "cifar10" else "Appendix",
                f"{name}: FedEntropy has the least communication overhead to the target in all three cases",
                "argued, no numbers",
                all_better(pairs, bytes_saved),
            ),
        ]
    return [
        *claims,
        Claim(
            "4.2",
            "The upload of FedEntropy in a round is at most that of FedAvg",
            "argued, no numbers",
            _upload_at_most_fedavg,
        ),
        Claim("4.2", "The upload of soft labels is negligible", "argued, no numbers", _soft_labels_negligible),
    ]


def _upload_at_most_fedavg(records: Records) -> tuple[str, str, str]:
    runs = [run for (_, _, method, _), run in records.runs.items() if method == "fedavg+entropy"]
    if not runs:
        return NOT_TESTED, "—", "no runs"
    model = 4 * _parameters(runs[0])
    most = max(int(run.rounds["bytes_up"].max()) / (run.config.chosen_per_round * 4 * _parameters(run)) for run in runs)
    mean = float(np.mean([run.rounds["models_up"].mean() / run.config.chosen_per_round for run in runs]))
    verdict = REPRODUCED if most <= 1.001 else NOT_REPRODUCED
    return (
        verdict,
        f"{mean:.0%} of FedAvg's models on average",
        f"at most {most:.4f} of FedAvg's bytes, model {model:,} B",
    )


def _soft_labels_negligible(records: Records) -> tuple[str, str, str]:
    runs = [run for (_, _, method, _), run in records.runs.items() if method == "fedavg+entropy"]
    if not runs:
        return NOT_TESTED, "—", "no runs"
    share = max(
        1 - float(run.rounds["models_up"].sum()) * 4 * _parameters(run) / float(run.rounds["bytes_up"].sum())
        for run in runs
    )
    return (
        (REPRODUCED if share < 0.01 else NOT_REPRODUCED),
        f"{share:.3%} of the upload at most",
        "less than 1 % counts",
    )


def _parameters(run: RunRecord) -> int:
    """P, from the bytes that went down to the devices."""
    transfers = run.config.chosen_per_round * 4 * (2 if run.config.method == "scaffold" else 1)
    return int(run.rounds["bytes_down"].iloc[0]) // transfers


def _synergy_claims() -> list[Claim]:
    synergy = ("fedprox", "scaffold", "moon")
    claims = [
        Claim(
            "4.2",
            f"{NAMES[method]} with FedEntropy is more accurate than without, CIFAR-10, all cases",
            f"Table 3 against Table 1: {_paper_table('table3', 'cifar10', CASES, [method + '+entropy'])}; "
            f"{_paper_table('table1', 'cifar10', CASES, [method])}",
            all_better(_with_entropy(["cifar10"], [method]), last_ten),
        )
        for method in synergy
    ]
    others = [
        Claim(
            "Appendix",
            f"All four methods get notable benefits from FedEntropy on {DATASET_NAMES[dataset]} (Figure 6)",
            "a figure, no numbers",
            all_better(_with_entropy([dataset], BASELINES), last_ten),
        )
        for dataset in ("cifar100", "cinic10")
    ]
    beats_scaffold = Claim(
        "4.2",
        "FedAvg + FedEntropy outperforms SCAFFOLD, CIFAR-10, all cases",
        _paper_table("table1", "cifar10", CASES, ("fedavg+entropy", "scaffold")),
        all_better([Comparison("cifar10", case, "fedavg+entropy", "scaffold") for case in CASES], last_ten),
    )
    best = Claim(
        "4.2",
        "Of all combinations FedAvg + FedEntropy is the most accurate on CIFAR-10, all cases (best round)",
        _paper_table("table3", "cifar10", CASES, ("fedavg+entropy", *(m + "+entropy" for m in synergy))),
        all_better(
            [Comparison("cifar10", c, "fedavg+entropy", m + "+entropy") for c in CASES for m in synergy], best_round
        ),
    )
    return [*claims, *others, beats_scaffold, best]


def _ablation_claims() -> list[Claim]:
    def pair(better: str, worse: str) -> Callable:
        return all_better([Comparison("cifar10", 1, better, worse)], last_ten)

    return [
        Claim(
            "4.3",
            "The judgment raises accuracy: FedEntropy without pools beats FedAvg, CIFAR-10 case 1",
            "a figure, no numbers",
            pair("fedavg+entropy-no-pools", "fedavg"),
        ),
        Claim(
            "4.3",
            "The pools raise accuracy further: FedEntropy beats FedEntropy without pools, CIFAR-10 case 1",
            "a figure, no numbers",
            pair("fedavg+entropy", "fedavg+entropy-no-pools"),
        ),
        Claim(
            "4.3",
            "The other cases and data sets show the same trend in the ablation",
            "no numbers",
            not_tested("the study runs the ablation on CIFAR-10 case 1 only, as the paper's figure does"),
        ),
    ]


def claims() -> list[Claim]:
    """Every claim of Section 4 and of the appendix's results."""
    return [*_accuracy_claims(), *_communication_claims(), *_synergy_claims(), *_ablation_claims()]


def verdicts(records: Records) -> pd.DataFrame:
    """A row a claim."""
    rows = [(claim.section, claim.text, claim.paper, *claim.decide(records)) for claim in claims()]
    return pd.DataFrame(rows, columns=["section", "claim", "paper", "verdict", "ours", "note"])
