"""Findings on accuracy: Table 1, Figure 2, and how far ten rounds can be trusted."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fedentropy_core.paper.findings.common import DECIDES, LIKE_FEDAVG, OURS, datasets, gain, in_cases, places
from fedentropy_core.paper.protocol import CONFIDENCE
from fedentropy_core.paper.reported import papers_number
from fedentropy_core.paper.study import PAPER_CASES, TABLE_1
from fedentropy_core.paper.tables import noise_table
from fedentropy_core.report.findings import Finding, Findings, listed, say
from fedentropy_core.report.frame import NEAR_CHANCE, cell, classes_of
from fedentropy_core.report.looks import DATASET_NAMES, NAMES
from fedentropy_core.report.statistics import MOST_FLIPPED, sign_flip
from fedentropy_core.runs.record import TABLE_ROUNDS, VERDICT_ROUNDS

FEWEST_FLIPPED = 6  # pairs, with which a sign-flip test can be clear at all


def accuracy(runs: pd.DataFrame) -> Findings:
    """FedEntropy against the others, by data set."""
    return Findings(f for d in datasets(runs) for topic in (leads_fedavg, ahead, sign) for f in topic(runs, d))


def leads_fedavg(runs: pd.DataFrame, dataset: str) -> Iterator[Finding]:
    found = [
        (case, pairs, paper)
        for case, pairs in places(runs, dataset, OURS, "fedavg")
        if (paper := _papers_lead(dataset, case, OURS, "fedavg")) is not None
    ]
    if not found:
        return
    cases, pairs, papers = zip(*found, strict=True)
    by_hundred, by_ten = ([gain(each, measure).mean() for each in pairs] for measure in (DECIDES, "last_ten"))
    yield say(
        "On {data} FedEntropy leads FedAvg in {cases} by {by_hundred} points over the last {hundred} rounds, by "
        "{by_ten} over the last {ten}, the paper's measure (the paper: {papers}).",
        lambda least: least > 0,
        data=DATASET_NAMES[dataset],
        cases=in_cases(cases),
        by_hundred=listed(by_hundred, ".1f"),
        by_ten=listed(by_ten, ".1f"),
        papers=listed(papers, ".1f"),
        hundred=VERDICT_ROUNDS,
        ten=TABLE_ROUNDS,
        least=float(min(by_hundred)),
    )


def ahead(runs: pd.DataFrame, dataset: str) -> Iterator[Finding]:
    """FedProx and Moon, seed by seed."""
    methods = [m for m in LIKE_FEDAVG if m != "fedavg"]
    gains = [gain(pairs) for method in methods for _, pairs in places(runs, dataset, OURS, method)]
    if gains:
        each = np.concatenate(gains)
        yield say(
            "On {data} it is ahead of {methods} in {ahead} of {pairs} pairs of runs with the same seed, by {mean:.1f} "
            "points on average.",
            lambda ahead, pairs: 2 * ahead > pairs,
            data=DATASET_NAMES[dataset],
            methods=listed(NAMES[method] for method in methods),
            ahead=int((each > 0).sum()),
            pairs=len(each),
            mean=float(each.mean()),
        )


def sign(runs: pd.DataFrame, dataset: str) -> Iterator[Finding]:
    gains = [gain(pairs) for _, pairs in places(runs, dataset, OURS, "fedavg")]
    each = np.concatenate(gains) if gains else np.array([])
    if FEWEST_FLIPPED <= len(each) <= MOST_FLIPPED:
        yield say(
            "Over all cases of {data} FedEntropy is above FedAvg in {ahead} of {pairs} pairs of runs with the same "
            "seed, by {mean:.1f} points on average (exact sign-flip test: p = {p:.3f}).",
            lambda mean, p, level: mean > 0 and p < level,
            data=DATASET_NAMES[dataset],
            ahead=int((each > 0).sum()),
            pairs=len(each),
            mean=float(each.mean()),
            p=sign_flip(each),
            level=1 - CONFIDENCE,
        )


def scaffold(runs: pd.DataFrame) -> Findings:
    """Where SCAFFOLD contradicts the paper."""
    topics = (scaffold_at_chance, scaffold_in_case_2, scaffold_in_case_3)
    return Findings(f for dataset in datasets(runs) for topic in topics for f in topic(runs, dataset))


def scaffold_at_chance(runs: pd.DataFrame, dataset: str) -> Iterator[Finding]:
    found, paper = cell(runs, dataset, 1, "scaffold"), papers_number("table1", dataset, 1, "scaffold")
    if len(found) and paper:
        yield say(
            "SCAFFOLD as published stays at chance in case {case} of {data}: {mean:.1f} %, where the paper has "
            "{paper:.1f}.",
            lambda mean, chance, near: mean < chance + near,
            case=1,
            data=DATASET_NAMES[dataset],
            mean=float(found["last_ten"].mean()),
            paper=paper[0],
            chance=100 / classes_of(found["record"].iloc[0]),
            near=NEAR_CHANCE,
        )


def scaffold_in_case_2(runs: pd.DataFrame, dataset: str) -> Iterator[Finding]:
    paper = _papers_lead(dataset, 2, "scaffold", OURS)
    for case, pairs in places(runs, dataset, "scaffold", OURS):
        if case == 2 and paper is not None:
            each = gain(pairs, "last_ten")
            yield say(
                "In case {case} of {data} SCAFFOLD is on the other side of FedEntropy than in the paper: {lead:+.1f} "
                "points, with {ahead} of {seeds} seeds ahead (the paper: {paper:+.1f}).",
                lambda lead, paper: lead * paper < 0,
                case=case,
                data=DATASET_NAMES[dataset],
                lead=float(each.mean()),
                paper=paper,
                ahead=int((each > 0).sum()),
                seeds=len(each),
            )


def scaffold_in_case_3(runs: pd.DataFrame, dataset: str) -> Iterator[Finding]:
    for case, pairs in places(runs, dataset, "scaffold", OURS):
        if case == 3 and len(pairs) > 1 and pairs["record"].iloc[0].config.partition_seed is None:
            each = gain(pairs, "last_ten")
            yield say(
                "In case {case} of {data}, where each seed draws its own partition, it depends on the draw: SCAFFOLD "
                "is {low:+.1f} to {high:+.1f} points from FedEntropy.",
                lambda low, high: low < 0 < high,
                case=case,
                data=DATASET_NAMES[dataset],
                low=float(each.min()),
                high=float(each.max()),
            )


def level(runs: pd.DataFrame) -> Findings:
    """Ours less the paper's, over the methods that learn."""
    findings = []
    for dataset in datasets(runs):
        levels = {case: value for case in PAPER_CASES if not np.isnan(value := _level(runs, dataset, case))}
        if len(levels) < 2:
            continue
        near, far = (pick(levels, key=lambda case: abs(levels[case])) for pick in (min, max))
        findings.append(
            say(
                "Our level on {data}, ours less the paper's over the methods that learn, is nearest in case {near} "
                "({least:+.1f} points) and furthest in case {far} ({most:+.1f}).",
                lambda least, most: most > 2 * abs(least),
                data=DATASET_NAMES[dataset],
                near=near,
                far=far,
                least=levels[near],
                most=levels[far],
            )
        )
    return Findings(findings)


def _level(runs: pd.DataFrame, dataset: str, case: int) -> float:
    differences = [
        found["last_ten"].mean() - paper[0]
        for variant in TABLE_1
        if len(found := cell(runs, dataset, case, variant)) and not found["at_chance"].all()
        if (paper := papers_number("table1", dataset, case, variant))
    ]
    return float(np.mean(differences)) if differences else np.nan


def noise(runs: pd.DataFrame) -> Findings:
    """How much of an accuracy is the choice of its ten rounds."""
    learned = runs[~runs["at_chance"] & ~runs["diverged"]]
    findings = []
    for dataset in datasets(learned):
        table = noise_table(learned, [dataset], TABLE_1)
        table["paper_std"] = [
            (papers_number("table1", dataset, row.case, row.variant) or (np.nan, np.nan))[1]
            for row in table.itertuples()
        ]
        table = table.dropna(subset=["mean", "paper_std"])
        if len(table):
            findings.append(
                say(
                    "On {data} the choice of {ten} rounds alone has a standard deviation of {low:.1f} to {high:.1f} "
                    "points where a method learns, more than the paper's over seeds in {more} of {cells} cells.",
                    lambda more, cells: 2 * more > cells,
                    data=DATASET_NAMES[dataset],
                    ten=TABLE_ROUNDS,
                    low=float(table["mean"].min()),
                    high=float(table["mean"].max()),
                    more=int((table["mean"] > table["paper_std"]).sum()),
                    cells=len(table),
                )
            )
    return Findings(findings)


def curves(runs: pd.DataFrame) -> Findings:
    """Figure 2."""
    findings = []
    for dataset in datasets(runs):
        found = list(places(runs, dataset, OURS, "fedavg"))
        if found:
            early, late = ([_mean_gain(pairs, part) for _, pairs in found] for part in ("head", "tail"))
            findings.append(
                say(
                    "On {data} FedEntropy leads FedAvg in {cases} by {early} points over the first {hundred} "
                    "rounds and by {late} over the last.",
                    lambda least: least > 0,
                    data=DATASET_NAMES[dataset],
                    cases=in_cases(case for case, _ in found),
                    early=listed(early, ".1f"),
                    late=listed(late, ".1f"),
                    hundred=VERDICT_ROUNDS,
                    least=min(early + late),
                )
            )
        apart = [np.abs(gain(pairs)) for _, pairs in places(runs, dataset, "fedprox", "fedavg")]
        if apart:
            findings.append(
                say(
                    "On {data} FedProx lies on FedAvg: with the same draws and μ = {mu:g} the two differ by {mean:.2f} "
                    "points on average over the last {hundred} rounds.",
                    lambda mean: mean < 0.5,
                    data=DATASET_NAMES[dataset],
                    mu=float(runs["prox_mu"].iloc[0]),
                    mean=float(np.concatenate(apart).mean()),
                    hundred=VERDICT_ROUNDS,
                )
            )
    return Findings(findings)


def _mean_gain(pairs: pd.DataFrame, part: str) -> float:
    """Over the first or last hundred rounds, in points."""
    sides = zip(pairs["record"], pairs["record_other"], strict=True)
    means = [[getattr(r.rounds["accuracy"], part)(VERDICT_ROUNDS).mean() for r in side] for side in sides]
    return float(100 * np.mean([one - other for one, other in means]))


def _papers_lead(dataset: str, case: int, one: str, other: str) -> float | None:
    numbers = [papers_number("table1", dataset, case, variant) for variant in (one, other)]
    return None if None in numbers else numbers[0][0] - numbers[1][0]
