"""Findings on rounds and bytes: Tables 2 and 6, and accuracy by upload."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fedentropy_core.paper.comparisons import Pair, papers_saving
from fedentropy_core.paper.findings.common import OURS, datasets, in_cases, places
from fedentropy_core.paper.reported import BASELINES, ROUNDS_TABLES
from fedentropy_core.paper.tables import to_target
from fedentropy_core.report.findings import Finding, Findings, listed, say
from fedentropy_core.report.frame import SMOOTH, cell, same_seeds
from fedentropy_core.report.looks import DATASET_NAMES


def rounds(runs: pd.DataFrame) -> Findings:
    """Rounds to the paper's target."""
    return Findings(f for d in datasets(runs) for topic in (fewer_rounds, missed_targets) for f in topic(runs, d))


def fewer_rounds(runs: pd.DataFrame, dataset: str) -> Iterator[Finding]:
    found = list(_both(runs, dataset, "fedavg", "rounds"))
    if found and dataset in ROUNDS_TABLES:
        cases, savings, ahead, pairs = zip(*found, strict=True)
        papers = [papers_saving(Pair(dataset, c, OURS, "fedavg", ROUNDS_TABLES[dataset]))[0] for c in cases]
        yield say(
            "On {data} FedEntropy needs fewer rounds to the paper's target than FedAvg with {ahead} of {pairs} "
            "seeds: in {cases} {savings} % fewer on average (the paper: {papers}).",
            lambda ahead, pairs: 2 * ahead > pairs,
            data=DATASET_NAMES[dataset],
            ahead=sum(ahead),
            pairs=sum(pairs),
            cases=in_cases(cases),
            savings=listed(savings, ".0f"),
            papers=listed(papers, ".0f"),
        )


def missed_targets(runs: pd.DataFrame, dataset: str) -> Iterator[Finding]:
    found = to_target(cell(runs, dataset, 1, "scaffold"), "rounds")
    if len(found):
        yield say(
            "SCAFFOLD does not get to the target in case {case} of {data} with {missed} of {seeds} seeds.",
            lambda missed, seeds: missed == seeds,
            case=1,
            data=DATASET_NAMES[dataset],
            missed=int(found["rounds_to_target"].isna().sum()),
            seeds=len(found),
        )


def upload(runs: pd.DataFrame) -> Findings:
    """What is uploaded, in a round and to the target."""
    topics = (uploads_less, scaffold_uploads_more)
    return Findings([*models_a_round(runs), *(f for d in datasets(runs) for topic in topics for f in topic(runs, d))])


def models_a_round(runs: pd.DataFrame) -> Iterator[Finding]:
    ours = runs[runs["variant"] == OURS]
    if len(ours):
        models = float((ours["models_up"] / ours["rounds_played"]).mean())
        yield say(
            "FedEntropy uploads {models:.1f} models in a round, of {chosen} chosen devices.",
            lambda models, chosen: models < chosen,
            models=models,
            chosen=ours["record"].iloc[0].config.chosen_per_round,
        )


def uploads_less(runs: pd.DataFrame, dataset: str) -> Iterator[Finding]:
    found = list(_both(runs, dataset, "fedavg", "megabytes"))
    if found:
        cases, savings, *_ = zip(*found, strict=True)
        yield say(
            "To the target of {data} FedEntropy uploads {shares} % of FedAvg's bytes in {cases}.",
            lambda most: most < 100,
            data=DATASET_NAMES[dataset],
            shares=listed([100 - saving for saving in savings], ".0f"),
            cases=in_cases(cases),
            most=100 - min(savings),
        )


def scaffold_uploads_more(runs: pd.DataFrame, dataset: str) -> Iterator[Finding]:
    each = [
        pairs["megabytes_to_target_other"] / pairs["megabytes_to_target"]
        for _, pairs in places(to_target(runs, "megabytes"), dataset, OURS, "scaffold")
    ]
    ratios = pd.concat(each).dropna() if each else pd.Series(dtype=float)
    if len(ratios):
        yield say(
            "Where SCAFFOLD gets to the target of {data} it uploads {low:.1f} to {high:.1f} times as much as "
            "FedEntropy.",
            lambda low: low > 1,
            data=DATASET_NAMES[dataset],
            low=float(ratios.min()),
            high=float(ratios.max()),
        )


def by_upload(runs: pd.DataFrame) -> Findings:
    """Who is ahead for the bytes of FedEntropy's whole run."""
    among = same_seeds(runs, (OURS, *BASELINES))
    by_place = [found for _, found in among.groupby([among["dataset"], among["case"].astype(str)])]
    first = [_first(found) for found in by_place if OURS in set(found["variant"]) and found["variant"].nunique() > 1]
    if not first:
        return Findings()
    return Findings(
        [
            say(
                "For the bytes that FedEntropy's run takes in all it is the most accurate in {ahead} of {places} "
                "data sets and cases (means of {window} rounds).",
                lambda ahead, places: 2 * ahead > places,
                ahead=sum(variant == OURS for variant in first),
                places=len(first),
                window=SMOOTH,
            )
        ]
    )


def _first(found: pd.DataFrame) -> str:
    """The variant that is most accurate, over seeds, once it has uploaded what FedEntropy's run uploads."""
    budget = found.loc[found["variant"] == OURS, "megabytes_up"].mean() * 1e6
    accuracy = {
        variant: np.mean([_accuracy_for(record.rounds, budget) for record in rows["record"]])
        for variant, rows in found.groupby("variant")
    }
    return max(accuracy, key=accuracy.get)


def _accuracy_for(rounds: pd.DataFrame, budget: float) -> float:
    spent = rounds["bytes_up"].cumsum() <= budget
    return float(rounds["accuracy"][spent].tail(SMOOTH).mean()) if spent.any() else 0.0


def _both(runs: pd.DataFrame, dataset: str, other: str, what: str) -> Iterator[tuple[int, float, int, int]]:
    """Each case in which all seeds of both get to the target: percent less than the other, seeds ahead, and seeds."""
    for case, pairs in places(to_target(runs, what), dataset, OURS, other):
        one, two = pairs[f"{what}_to_target"], pairs[f"{what}_to_target_other"]
        if one.notna().all() and two.notna().all():
            yield case, 100 * (1 - one.mean() / two.mean()), int((one < two).sum()), len(pairs)
