"""The claims of the paper's text, each with the paper's numbers, ours, and a verdict that follows from a rule.

A claim that one method is ahead of others is a list of comparisons (see comparisons.py). It is reproduced if every
one holds, not reproduced if one fails, else open; not tested while comparisons lack runs or have one seed, and the note
says which way they point. A claim on the size of messages follows from what is sent, whatever the training does: it is
true or false by arithmetic.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedentropy_core.paper.comparisons import (
    BEST_ROUND,
    LAST_TEN,
    MEGABYTES,
    ROUNDS,
    Comparison,
    Measure,
    Measured,
    Outcome,
    measure_pair,
)
from fedentropy_core.paper.heterogeneity import index_table
from fedentropy_core.paper.study import PAPER_CASES
from fedentropy_core.paper.tables import BASELINES, papers_number
from fedentropy_core.report.looks import NAMES
from fedentropy_core.report.records import DATASET_NAMES, Records
from fedentropy_core.runs.record import RunRecord

REPRODUCED, NOT_REPRODUCED, OPEN, NOT_TESTED = "reproduced", "not reproduced", "open", "not tested"
TRUE, FALSE = "true by arithmetic", "false by arithmetic"

# Verdict, our numbers, note.
Decision = tuple[str, str, str]
Decide = Callable[[Records], Decision]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, where it stands, its numbers, and how to decide it."""

    section: str
    text: str
    paper: str
    decide: Decide


# ------------------------------------------------------------------------------------------------ rules


def all_better(pairs: Sequence[Comparison], measure: Measure) -> Decide:
    """Decides a claim that every comparison holds; one that fails is enough against it, whatever is missing."""

    def decide(records: Records) -> Decision:
        measured, ours, note = _measure_all(records, pairs, measure)
        outcomes = [m.outcome for m in measured]
        if Outcome.FAILS in outcomes:
            return NOT_REPRODUCED, ours, note
        if len(measured) < len(pairs) or min(m.seeds for m in measured) < 2:
            return NOT_TESTED, ours, note
        return REPRODUCED if set(outcomes) == {Outcome.HOLDS} else OPEN, ours, note

    return decide


def highest_in_most(settings: Sequence[Sequence[Comparison]], measure: Measure) -> Decide:
    """Decides a claim that a method is the best in most settings, each given by its comparisons with all others.

    A setting holds if all its comparisons hold and fails if one fails. More than half of all settings must hold; the
    claim is refuted if at least half fail.
    """

    def decide(records: Records) -> Decision:
        verdicts = [all_better(pairs, measure)(records)[0] for pairs in settings]
        _, ours, note = _measure_all(records, [pair for pairs in settings for pair in pairs], measure)
        holding, failing = verdicts.count(REPRODUCED), verdicts.count(NOT_REPRODUCED)
        note = f"highest in {holding} of {len(settings)} data sets and cases, not in {failing}; {note}"
        if holding > len(settings) / 2:
            return REPRODUCED, ours, note
        if failing >= len(settings) / 2:
            return NOT_REPRODUCED, ours, note
        return NOT_TESTED if NOT_TESTED in verdicts else OPEN, ours, note

    return decide


def _measure_all(records: Records, pairs: Sequence[Comparison], measure: Measure) -> tuple[list[Measured], str, str]:
    """What is measured of the comparisons, in words, and a note on how they stand."""
    measured = [m for m in (measure_pair(records, pair, measure) for pair in pairs) if m is not None]
    if not measured:
        return [], "—", "no runs"
    missing, single = len(pairs) - len(measured), sum(m.seeds < 2 for m in measured)
    outcomes = {outcome: sum(m.outcome is outcome and m.seeds > 1 for m in measured) for outcome in Outcome}
    collapsed = sum(m.points_right and m.collapsed > 0 for m in measured)
    notes = [
        f"{missing} of {len(pairs)} comparisons without runs" if missing else "",
        f"{single} with one seed only" if single else "",
        ", ".join(f"{count} {outcome.value}" for outcome, count in outcomes.items() if count),
        f"{sum(m.points_right for m in measured)} of {len(measured)} point the claimed way"
        + (f", {collapsed} of them against a method at chance" if collapsed else ""),
    ]
    return measured, "; ".join(m.text() for m in measured), "; ".join(filter(None, notes))


def difference_is(pair: Comparison, paper: float, measure: Measure) -> Decide:
    """Decides a number: not reproduced if it is neither in our interval nor within a point of our mean; reproduced if
    the comparison holds and it is within that point, or the interval is narrower than the number itself; else open: the
    interval is then too wide to tell."""

    def decide(records: Records) -> Decision:
        measured = measure_pair(records, pair, measure)
        if measured is None:
            return NOT_TESTED, "—", "no runs"
        note = f"the paper's {paper:+.2f} against our {measured.mean:+.2f}"
        if measured.seeds < 2:
            return NOT_TESTED, measured.text(), f"one seed only; {note}"
        distance = abs(measured.mean - paper)
        if distance > max(measured.half_width, 1.0):
            return NOT_REPRODUCED, measured.text(), note
        telling = distance <= 1.0 or 2 * measured.half_width < abs(paper)
        return (REPRODUCED if telling and measured.outcome is Outcome.HOLDS else OPEN), measured.text(), note

    return decide


def not_tested(why: str) -> Decide:
    return lambda records: (NOT_TESTED, "—", why)


# ------------------------------------------------------------------------------------------------ what is compared


def _against_baselines(dataset: str, cases: Sequence[int] = PAPER_CASES) -> list[Comparison]:
    return [Comparison(dataset, case, "fedavg+entropy", method) for case in cases for method in BASELINES]


def _with_entropy(dataset: str, methods: Sequence[str], cases: Sequence[int] = PAPER_CASES) -> list[Comparison]:
    return [Comparison(dataset, case, f"{m}+entropy", m) for case in cases for m in methods]


def _papers_own(pair: Comparison) -> bool:
    """Whether the paper's Table 1 itself has `better` ahead."""
    ours, theirs = (papers_number("table1", pair.dataset, pair.case, m) for m in (pair.better, pair.worse))
    return ours[0] > theirs[0]


def _paper_table(table: str, dataset: str, methods: Sequence[str]) -> str:
    cells = {m: [papers_number(table, dataset, case, m) for case in PAPER_CASES] for m in methods}
    return "; ".join(f"{NAMES[m]} " + " / ".join(f"{c[0]:.2f}" for c in row if c) for m, row in cells.items())


# ------------------------------------------------------------------------------------------------ Section 4.2


def _accuracy_claims() -> list[Claim]:
    percentages = [
        Claim(
            "4.2",
            f"CIFAR-10 case 1: FedEntropy is {paper:.2f} points more accurate than {NAMES[method]}",
            f"{paper:+.2f}",
            difference_is(Comparison("cifar10", 1, "fedavg+entropy", method), paper, LAST_TEN),
        )
        for method, paper in zip(BASELINES, (5.44, 4.93, 10.22, 10.42), strict=True)
    ]
    datasets = ("cifar10", "cifar100", "cinic10")
    in_most_cases = Claim(
        "4.2",
        "In most cases FedEntropy achieves the highest accuracy (Figure 2)",
        "a figure, no numbers",
        highest_in_most([_against_baselines(d, [case]) for d in datasets for case in PAPER_CASES], LAST_TEN),
    )
    return [*map(_outperforms, datasets), *percentages, in_most_cases]


def _outperforms(dataset: str) -> Claim:
    """The paper's sentence has no exception, its table has; the claim is decided on what the table supports."""
    pairs = _against_baselines(dataset)
    exceptions = [f"{NAMES[pair.worse]} is ahead in case {pair.case}" for pair in pairs if not _papers_own(pair)]
    table = _paper_table("table1", dataset, (*BASELINES, "fedavg+entropy"))
    return Claim(
        "4.2",
        f"Under different heterogeneity settings FedEntropy outperforms the other methods on {DATASET_NAMES[dataset]}",
        "; ".join([table, *(f"by this table {text}, which is left out" for text in exceptions)]),
        all_better([pair for pair in pairs if _papers_own(pair)], LAST_TEN),
    )


def _communication_claims() -> list[Claim]:
    claims = []
    for table, dataset, section in (("table2", "cifar10", "4.2"), ("table6", "cifar100", "Appendix")):
        name, pairs = DATASET_NAMES[dataset], _against_baselines(dataset)
        claims += [
            Claim(
                section,
                f"{name}: FedEntropy needs the fewest rounds to the target in all three cases",
                _paper_table(table, dataset, (*BASELINES, "fedavg+entropy")),
                all_better(pairs, ROUNDS),
            ),
            Claim(
                section,
                f"{name}: FedEntropy has the least communication overhead to the target in all three cases",
                "argued, no numbers",
                all_better(pairs, MEGABYTES),
            ),
        ]
    argued = [
        ("The downlink overhead of all methods is the same", _same_downlink),
        ("The communication cost of SCAFFOLD is twice that of FedAvg", _scaffold_doubles),
        ("The upload of FedEntropy in a round is at most that of FedAvg", _upload_at_most_fedavg),
        ("The upload of soft labels is negligible", _soft_labels_negligible),
        (
            "The communication overhead on CINIC-10 shows similar trends",
            not_tested("the paper gives no target"),
        ),
    ]
    return [*claims, *(Claim("4.2", text, "argued, no numbers", decide) for text, decide in argued)]


def _a_round(records: Records, direction: str, methods: Sequence[str]) -> dict[str, float]:
    """The largest bytes of a round over those of FedAvg on the same data, for each method that has both runs."""
    fedavg = {run.config.dataset: run.rounds[direction].max() for run in _runs(records, "fedavg")}
    ratios = {
        method: [
            run.rounds[direction].max() / fedavg[d]
            for run in _runs(records, method)
            if (d := run.config.dataset) in fedavg
        ]
        for method in methods
    }
    return {method: max(found) for method, found in ratios.items() if found}


def _runs(records: Records, method: str) -> list[RunRecord]:
    return [run for (_, _, label, _), run in records.runs.items() if label == method]


def _same_downlink(records: Records) -> Decision:
    ratios = _a_round(records, "bytes_down", BASELINES)
    ours = ", ".join(f"{NAMES[method]} {ratio:.0f}" for method, ratio in ratios.items())
    if "scaffold" not in ratios:
        return NOT_TESTED, ours or "—", "no runs of SCAFFOLD"
    verdict = TRUE if set(ratios.values()) == {1.0} else FALSE
    return verdict, ours, "bytes to the devices in a round over FedAvg's; SCAFFOLD's devices need c as well"


def _scaffold_doubles(records: Records) -> Decision:
    ratios = _a_round(records, "bytes_up", ("scaffold",))
    if not ratios:
        return NOT_TESTED, "—", "no runs of SCAFFOLD"
    return TRUE if ratios["scaffold"] == 2 else FALSE, f"{ratios['scaffold']:.2f} times", "upload"


def _upload_at_most_fedavg(records: Records) -> Decision:
    ratios = _a_round(records, "bytes_up", ("fedavg+entropy",))
    if not ratios:
        return NOT_TESTED, "—", "no runs"
    most = ratios["fedavg+entropy"]
    runs = _runs(records, "fedavg+entropy")
    mean = float(np.mean([run.rounds["models_up"].mean() / run.config.chosen_per_round for run in runs]))
    note = f"a round with soft labels is at most {most:.4f} of FedAvg's bytes; up to 1.001 counts"
    return (TRUE if most <= 1.001 else FALSE), f"{mean:.0%} of FedAvg's models on average", note


def _soft_labels_negligible(records: Records) -> Decision:
    runs = _runs(records, "fedavg+entropy")
    if not runs:
        return NOT_TESTED, "—", "no runs"
    share = max(map(_soft_label_share, runs))
    return TRUE if share < 0.01 else FALSE, f"{share:.3%} of the upload at most", "less than 1 % counts"


def _soft_label_share(run: RunRecord) -> float:
    """What of a run's upload is not models; FedEntropy's downlink is models alone."""
    model = run.rounds["bytes_down"].iloc[0] / run.config.chosen_per_round
    return 1 - run.rounds["models_up"].sum() * model / run.rounds["bytes_up"].sum()


def _synergy_claims() -> list[Claim]:
    claims = [
        Claim(
            "4.2",
            f"{NAMES[method]} with FedEntropy is more accurate than without, CIFAR-10, all cases",
            f"Table 3 against Table 1: {_paper_table('table3', 'cifar10', [method + '+entropy'])}; "
            f"{_paper_table('table1', 'cifar10', [method])}",
            all_better(_with_entropy("cifar10", [method]), LAST_TEN),
        )
        for method in BASELINES
    ]
    others = [
        Claim(
            "Appendix",
            f"All four methods get notable benefits from FedEntropy on {DATASET_NAMES[dataset]} (Figure 6)",
            "a figure, no numbers",
            all_better(_with_entropy(dataset, BASELINES), LAST_TEN),
        )
        for dataset in ("cifar100", "cinic10")
    ]
    beats_scaffold = Claim(
        "4.2",
        "FedAvg + FedEntropy outperforms SCAFFOLD, CIFAR-10, all cases",
        _paper_table("table1", "cifar10", ("fedavg+entropy", "scaffold")),
        all_better([Comparison("cifar10", case, "fedavg+entropy", "scaffold") for case in PAPER_CASES], LAST_TEN),
    )
    combined = [method + "+entropy" for method in BASELINES]
    best = Claim(
        "Table 3",
        "In bold: of all combinations FedAvg + FedEntropy is the most accurate on CIFAR-10, all cases (best round)",
        _paper_table("table3", "cifar10", combined),
        all_better(
            [Comparison("cifar10", case, combined[0], m) for case in PAPER_CASES for m in combined[1:]], BEST_ROUND
        ),
    )
    return [*claims, *others, beats_scaffold, best]


# ------------------------------------------------------------------------------------------------ Section 4.3, appendix


def _ablation_claims() -> list[Claim]:
    def pair(better: str, worse: str) -> Decide:
        return all_better([Comparison("cifar10", 1, better, worse)], LAST_TEN)

    return [
        Claim(
            "4.3",
            "The convergence of all four methods improves with FedEntropy: fewer rounds to 30 %, CIFAR-10 case 1",
            "a figure, no numbers",
            all_better(_with_entropy("cifar10", BASELINES, cases=[1]), ROUNDS),
        ),
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
        Claim(
            "Appendix", "The degree of data heterogeneity increases from case 1 to case 3", "a figure", _heterogeneity
        ),
    ]


def _heterogeneity(records: Records) -> Decision:
    """Needs no run: the partitions of CIFAR-10 and CIFAR-100, which the paper's Figure 5 shows."""
    distances = index_table(seeds=(0, 1, 2)).set_index(["dataset", "case"])["distance"]
    shown = {dataset: [float(distances[dataset, case]) for case in PAPER_CASES] for dataset in ("cifar10", "cifar100")}
    ours = "; ".join(f"{DATASET_NAMES[d]} {' / '.join(f'{x:.2f}' for x in row)}" for d, row in shown.items())
    rises = all(row == sorted(row) for row in shown.values())
    return REPRODUCED if rises else NOT_REPRODUCED, ours, "distance of a device's labels from all labels; notebook 02"


def claims() -> list[Claim]:
    """The claims of Section 4 and of the appendix's results."""
    return [*_accuracy_claims(), *_communication_claims(), *_synergy_claims(), *_ablation_claims()]


def verdicts(records: Records) -> pd.DataFrame:
    """A row a claim."""
    rows = [(claim.section, claim.text, claim.paper, *claim.decide(records)) for claim in claims()]
    return pd.DataFrame(rows, columns=["section", "claim", "paper", "verdict", "ours", "note"])
